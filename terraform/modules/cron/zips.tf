# The code of the two functions: two files on this machine, or two objects of a bucket that are named by their digests.

locals {
  zips = {
    for name, sha256 in { publisher = var.zips.publisher_sha256, runner = var.zips.runner_sha256 } : name => {
      file                          = var.zips.folder == null ? null : "${var.zips.folder}/${name}.zip"
      key                           = var.zips.bucket == null ? null : "${var.zips.prefix}${name}-${sha256}.zip"
      # `try`, because a destroy needs no zip. A plan that creates a function asks for the file by a precondition.
      hash     = var.zips.folder == null ? null : try(filebase64sha256("${var.zips.folder}/${name}.zip"), null)
      is_there = var.zips.folder == null || fileexists("${coalesce(var.zips.folder, ".")}/${name}.zip")
    }
  }
}

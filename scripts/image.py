"""Writes an OCI image of the app and the CLI as one archive, without a daemon: skopeo, podman and buildah read it.

The root has Debian's libc6 and libgcc-s1, certificate authorities, the two programs and nothing else: no shell, no package
manager. The same programs and packages give the same digest, because every time is that of the commit.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile

# Architecture: the name in OCI, the folder of Debian's libraries.
ARCHITECTURES = {"x86_64": ("amd64", "x86_64-linux-gnu"), "arm64": ("arm64", "aarch64-linux-gnu")}
LIBRARIES = ["libc6", "libgcc-s1"]
AUTHORITIES = "ca-certificates"
USER = 65532
FLOOR_MB = 40
MEGABYTE = 1_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHITECTURES, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="the folder of cronbox-app and cronbox")
    parser.add_argument("--rds-ca", type=pathlib.Path, required=True, help="certificate authorities of RDS, PEM")
    parser.add_argument("--boms", type=pathlib.Path, required=True, help="the folder of app.cdx.json and cli.cdx.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder of cronbox.tar")
    parser.add_argument("--version", required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    packages = {name: download(name, arguments.out / "packages") for name in [*LIBRARIES, AUTHORITIES]}
    root = Root()
    add_libraries(root, packages, ARCHITECTURES[arguments.arch][1])
    add_authorities(root, packages[AUTHORITIES], arguments.rds_ca)
    add_programs(root, arguments)
    write(root, arguments)


class Root:
    """The files of the image, by their path."""

    def __init__(self):
        self.entries = {}

    def add(self, path, content, mode=0o444):
        self._add_folders(path)
        self.entries[path] = entry(path, tarfile.REGTYPE, mode, size=len(content)), content

    def link(self, path, to):
        self._add_folders(path)
        self.entries[path] = entry(path, tarfile.SYMTYPE, 0o777, linkname=to), b""

    def folder(self, path, mode=0o555):
        self._add_folders(path)
        self.entries[path] = entry(path, tarfile.DIRTYPE, mode), b""

    def _add_folders(self, path):
        for parent in pathlib.PurePosixPath(path).parents:
            if str(parent) != "." and str(parent) not in self.entries:
                self.entries[str(parent)] = entry(str(parent), tarfile.DIRTYPE, 0o555), b""

    def tar(self):
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(self.entries):
                info, content = self.entries[path]
                archive.addfile(info, io.BytesIO(content))
        return written.getvalue()


def entry(path, kind, mode, size=0, linkname=""):
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.size, info.linkname = kind, mode, size, linkname
    return info


def download(name, folder):
    """The newest .deb of this package that this machine's sources have."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}_*.deb"):
        old.unlink()
    command = ["apt-get", "download", "--quiet", name]
    try:
        if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode != 0:
            # The lists of a fresh machine are empty or old.
            subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        sys.exit("image: the root is of Debian's packages, and this machine has no apt-get: build on Debian 12 or later")
    except subprocess.CalledProcessError as error:
        sys.exit(f"image: cannot download {name}: {error.stderr.decode().strip()}")
    return next(folder.glob(f"{name}_*.deb"))


def files(package):
    """Path, header and content of each file of a .deb."""
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            content = archive.extractfile(member).read() if member.isfile() else b""
            yield member.name.removeprefix("./"), member, content


def add_libraries(root, packages, triple):
    for name in LIBRARIES:
        for path, member, content in files(packages[name]):
            is_library = ".so" in path and pathlib.PurePosixPath(path).parent.name in (triple, "lib64", "lib")
            if is_library and member.issym():
                root.link(path, member.linkname)
            elif is_library and member.isfile():
                root.add(path, content, 0o555)
            elif path == f"usr/share/doc/{name}/copyright" and member.isfile():
                root.add(path, content)
        # Where scanners look for the packages of an image without dpkg.
        control = subprocess.run(["dpkg-deb", "--field", packages[name]], check=True, stdout=subprocess.PIPE).stdout
        root.add(f"var/lib/dpkg/status.d/{name}", control)


def add_authorities(root, package, rds):
    pems = {path: content for path, _, content in files(package) if path.startswith("usr/share/ca-certificates/mozilla/")}
    root.add("etc/ssl/certs/ca-certificates.crt", b"".join(pems[path] for path in sorted(pems)))
    root.add("etc/ssl/certs/rds-ca.pem", rds.read_bytes())


def add_programs(root, arguments):
    for name in ["cronbox-app", "cronbox"]:
        stripped = arguments.out / name
        subprocess.run(["strip", "--strip-all", "-o", stripped, arguments.programs / name], check=True)
        root.add(f"usr/bin/{name}", stripped.read_bytes(), 0o555)
        stripped.unlink()
    for bom in ["app.cdx.json", "cli.cdx.json"]:
        root.add(f"usr/share/doc/cronbox/{bom}", (arguments.boms / bom).read_bytes())
    root.add("usr/share/doc/cronbox/LICENSE", pathlib.Path("LICENSE").read_bytes())
    root.add("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\ncronbox:x:{USER}:{USER}:cronbox:/:/sbin/nologin\n".encode())
    root.add("etc/group", f"root:x:0:\ncronbox:x:{USER}:\n".encode())
    root.add("etc/nsswitch.conf", b"hosts: files dns\n")
    root.folder("tmp", 0o1777)


def write(root, arguments):
    layer = root.tar()
    compressed = io.BytesIO()
    with gzip.GzipFile(fileobj=compressed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(layer)
    layout = Layout()
    config = layout.add(json_bytes(configuration(arguments, "sha256:" + sha256(layer))))
    manifest = layout.add(json_bytes({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **layout.add(compressed.getvalue())}],
    }))
    described = {"mediaType": "application/vnd.oci.image.manifest.v1+json", **manifest}
    described["annotations"] = {"org.opencontainers.image.ref.name": arguments.version}
    described["platform"] = {"architecture": ARCHITECTURES[arguments.arch][0], "os": "linux"}
    layout.files["index.json"] = json_bytes({"schemaVersion": 2, "manifests": [described]})
    layout.files["oci-layout"] = json_bytes({"imageLayoutVersion": "1.0.0"})
    size = len(compressed.getvalue()) / MEGABYTE
    if size > FLOOR_MB:
        sys.exit(f"image: {size:.1f} MB compressed; the floor is {FLOOR_MB} MB")
    (arguments.out / "cronbox.tar").write_bytes(layout.tar())
    (arguments.out / "digest").write_text(manifest["digest"] + "\n", encoding="utf-8")
    print(f"{arguments.out / 'cronbox.tar'}: {manifest['digest']}, {size:.1f} MB compressed (floor {FLOOR_MB})")


class Layout:
    """An OCI image layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md"""

    def __init__(self):
        self.files = {}

    def add(self, content):
        digest = sha256(content)
        self.files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def tar(self):
        root = Root()
        for path, content in self.files.items():
            root.add(path, content)
        return root.tar()


def configuration(arguments, diff_id):
    return {
        "architecture": ARCHITECTURES[arguments.arch][0],
        "os": "linux",
        "created": git("show", "--no-patch", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "HEAD")
        or "1970-01-01T00:00:00Z",
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/cronbox-app"],
            "Cmd": ["serve"],
            "WorkingDir": "/",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": [
                "PATH=/usr/bin",
                "CRONBOX_BIND_ADDR=0.0.0.0:8080",
                "CRONBOX_DB_CA_FILE=/etc/ssl/certs/rds-ca.pem",
                "CRONBOX_LOG_FORMAT=json",
            ],
            "Labels": {
                "org.opencontainers.image.title": "cronbox",
                "org.opencontainers.image.description": "A cron scheduler on AWS: the app and its command line.",
                "org.opencontainers.image.licenses": licence(),
                "org.opencontainers.image.revision": git("rev-parse", "HEAD") or "unknown",
                "org.opencontainers.image.version": arguments.version,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }


def licence():
    lines = pathlib.Path("Cargo.toml").read_text(encoding="utf-8").splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("license = "))


def git(*arguments):
    environment = {"TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    # A copy without a history has no commit.
    done = subprocess.run(["git", *arguments], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def json_bytes(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


main()

//! `make image`: the archive is an OCI image, and its app works in its root, as its user, without a writable file.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use local::config::target_folder;
use serde_json::{Value, json};
use tests::{PATIENCE, Story, find_kept_port};
use tokio::process::{Child, Command};

const ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };
const APP: &str = "/usr/bin/cronbox-app";

/// Unpacks the archive and its layer, checks each digest on the way, and prints manifest and configuration.
const UNPACK: &str = "
import gzip, hashlib, io, json, os, shutil, sys, tarfile
archive, root = tarfile.open(sys.argv[1]), sys.argv[2]
shutil.rmtree(root, ignore_errors=True)
def read(path): return archive.extractfile(path).read()
def blob(described):
    content = read('blobs/' + described['digest'].replace(':', '/'))
    assert hashlib.sha256(content).hexdigest() == described['digest'][7:] and len(content) == described['size'], described
    return content
assert json.loads(read('oci-layout')) == {'imageLayoutVersion': '1.0.0'}
[described] = json.loads(read('index.json'))['manifests']
manifest = json.loads(blob(described))
config = json.loads(blob(manifest['config']))
[layer] = manifest['layers']
tar = gzip.decompress(blob(layer))
assert config['rootfs']['diff_ids'] == ['sha256:' + hashlib.sha256(tar).hexdigest()]
files = tarfile.open(fileobj=io.BytesIO(tar))
assert all((file.uid, file.gid, file.mtime) == (0, 0, 0) for file in files)
assert not any(file.mode & 0o222 for file in files if file.isfile()), 'a file is writable'
files.extractall(root)
print(json.dumps({'digest': described['digest'], 'config': config, 'names': files.getnames()}))
";

/// As a container runtime does it: the root is mounted read-only, and the process has the user of the image.
const ENTER: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
                     exec chroot --userspec=65532:65532 \"$0\" \"$@\"";

/// The image, unpacked.
pub(crate) struct Image {
    root: PathBuf,
    digest: String,
    config: Value,
    names: Vec<String>,
}

impl Image {
    pub(crate) async fn unpacked(name: &str) -> Image {
        let archive = target_folder().join(format!("image/{ARCH}/cronbox.tar"));
        assert!(archive.exists(), "{} is missing: run `make image`", archive.display());
        let root = target_folder().join(name);
        let done = Command::new("python3").args(["-c", UNPACK]).arg(&archive).arg(&root).output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut read: Value = serde_json::from_slice(&done.stdout).unwrap();
        let names = serde_json::from_value(read["names"].take()).unwrap();
        let digest = read["digest"].as_str().unwrap().to_owned();
        Image { root, digest, config: read["config"]["config"].take(), names }
    }

    /// The program with these arguments and variables. `unshare` and `chroot` need root; another user runs it with the
    /// libraries of the image.
    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", ENTER]).arg(&self.root);
            command.arg(APP);
            command
        } else {
            let loader = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"].map(|name| self.root.join(name));
            let mut command = Command::new(loader.iter().find(|loader| loader.exists()).unwrap());
            let libraries = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"].map(|name| self.root.join(name));
            let libraries = libraries.iter().find(|folder| folder.exists()).unwrap();
            command.arg("--library-path").arg(libraries).arg(self.root.join(&APP[1..]));
            command
        };
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(variables.iter().copied());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts the app of the image, at this address if it is named, and returns it with its URL when it is ready.
    pub(crate) async fn serve(&self, dsn: &str, address: Option<&str>) -> (Child, String) {
        let free = || format!("127.0.0.1:{}", find_kept_port());
        let address = address.map_or_else(free, str::to_owned);
        let settings = [
            ("DATABASE_URL", dsn),
            ("CRONBOX_BIND_ADDR", &address),
            ("CRONBOX_SHUTDOWN_DRAIN_SECS", "1"),
            ("CRONBOX_DB_CA_FILE", "/etc/ssl/certs/rds-ca.pem"),
        ];
        // Without a root of its own the app has another path to the authorities, which this database does not need.
        let mut app = self.command(&["serve"], if is_root() { &settings } else { &settings[..3] }).spawn().unwrap();
        wait_until_ready(&address, &mut app).await;
        (app, format!("http://{address}"))
    }

    pub(crate) async fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let done = self.command(arguments, variables).output().await.unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// The digest of the manifest is that of the file `digest`, which environments name; no file is writable, and there is no shell.
#[tokio::test]
async fn the_archive_is_an_oci_image() {
    let image = Image::unpacked("deploy-image-archive").await;
    let digest = std::fs::read_to_string(target_folder().join(format!("image/{ARCH}/digest"))).unwrap();
    assert_eq!(digest.trim(), image.digest);
    assert_eq!(image.config["User"], "65532:65532");
    assert_eq!((&image.config["Entrypoint"], &image.config["Cmd"]), (&json!([APP]), &json!(["serve"])));
    let labels = &image.config["Labels"];
    assert!(labels["org.opencontainers.image.revision"].as_str().is_some_and(|commit| commit.len() >= 7), "{labels}");
    for name in [
        "usr/bin/cronbox",
        "etc/ssl/certs/ca-certificates.crt",
        "etc/ssl/certs/rds-ca.pem",
        "usr/share/doc/cronbox/app.cdx.json",
        "var/lib/dpkg/status.d/libc6",
    ] {
        assert!(image.names.iter().any(|known| known == name), "{name} is missing: {:?}", image.names);
    }
    assert!(!image.names.iter().any(|name| name.ends_with("/sh") || name.ends_with("/bash")), "{:?}", image.names);
}

/// The same programs and packages give the same digest.
#[tokio::test]
async fn the_image_depends_only_on_its_files() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let built = target_folder().join(format!("image/{ARCH}"));
    let mut digests = Vec::new();
    for nth in ["one", "two"] {
        let out = target_folder().join("deploy-image-again").join(nth);
        std::fs::create_dir_all(out.join("programs")).unwrap();
        // Small programs, because only the archive matters.
        for name in ["cronbox-app", "cronbox"] {
            std::fs::copy("/bin/true", out.join("programs").join(name)).unwrap();
        }
        let mut command = Command::new("python3");
        command.current_dir(repository).args(["scripts/image.py", "--arch", ARCH, "--version", "0.0.0", "--programs"]);
        command.arg(out.join("programs")).arg("--rds-ca").arg(built.join("rds-ca.pem")).arg("--boms").arg(&built);
        let done = command.arg("--out").arg(&out).output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        digests.push(std::fs::read_to_string(out.join("digest")).unwrap());
    }
    assert_eq!(digests[0], digests[1]);
}

/// The root is read-only and the user is 65532: the app migrates, serves, and ends at SIGTERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tour_is_taken_in_the_image() {
    let image = Image::unpacked("deploy-image").await;
    assert!(image.run(&["--version"], &[]).await.starts_with("cronbox-app "));
    let s = Story::with_daemon().await;
    let (owner, dsn) = (s.owner_dsn(), s.dsn());
    image.run(&["migrate"], &[("DATABASE_URL", &owner)]).await;
    let (app, url) = image.serve(&dsn, None).await;
    take_the_tour(&url, &s).await;
    end(app).await;
    s.end().await;
}

pub(crate) async fn wait_until_ready(address: &str, app: &mut Child) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ready = async {
        while !http
            .get(format!("http://{address}/readyz"))
            .send()
            .await
            .is_ok_and(|answer| answer.status().is_success())
        {
            assert!(app.try_wait().unwrap().is_none(), "the app has ended");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("the app of the image is ready");
}

async fn take_the_tour(url: &str, s: &Story) {
    let mut tour = Command::new("sh");
    tour.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tour.sh")).env("NO_PROXY", "127.0.0.1");
    tour.env("CRONBOX_URL", url).env("CRONBOX_KEY", &s.keys.admin);
    let done = tour.env("CRONBOX_TEAM_ID", s.keys.team_id.to_string()).stdin(Stdio::null()).output().await.unwrap();
    let (said, failed) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("The tour is over"), "{said}\n{failed}");
}

/// SIGTERM, as a container runtime sends it; `exec` leads from the shell to the app, so that it gets the signal.
async fn end(mut app: Child) {
    let pid = app.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, app.wait()).await.expect("the app ends").unwrap();
    assert!(ended.success(), "{ended}");
}

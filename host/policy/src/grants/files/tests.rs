#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A granted directory `keys`, beside a file that is not granted.
struct Stage {
    root: tempfile::TempDir,
    directories: BTreeMap<Box<str>, PathBuf>,
}

impl Stage {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("keys")).unwrap();
        fs::write(root.path().join("outside"), "hunter2").unwrap();
        let directories = BTreeMap::from([("keys".into(), root.path().join("keys"))]);
        Self { root, directories }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join("keys").join(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Failure> {
        read(&self.directories, path, 16)
    }

    fn refused(&self, path: &str) -> String {
        match self.read(path) {
            Err(Failure::Refused(why)) => why,
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn a_file_is_read_as_it_is_now() {
    let stage = Stage::new();
    fs::write(stage.at("a"), "one").unwrap();
    assert_eq!(stage.read("keys/a").unwrap(), b"one");
    fs::write(stage.at("a"), "two").unwrap();
    assert_eq!(stage.read("keys/./a").unwrap(), b"two");
    assert!(matches!(stage.read("keys/b"), Err(Failure::NotFound)));
    assert!(matches!(stage.read("keys/a/b"), Err(Failure::NotFound)));
    assert!(matches!(stage.read("other/a"), Err(Failure::NotFound)));
    assert!(stage.refused("keys").contains("names no file"));
    assert!(stage.refused("keys/").contains("names no file"));
}

#[test]
fn no_path_leads_out() {
    let stage = Stage::new();
    fs::create_dir(stage.at("deep")).unwrap();
    for path in ["keys/../outside", "keys/deep/../../outside", "keys//etc/passwd", "keys/.."] {
        assert!(stage.refused(path).contains("only names"), "{path}");
    }
    symlink("../outside", stage.at("relative")).unwrap();
    symlink(stage.root.path().join("outside"), stage.at("absolute")).unwrap();
    symlink("..", stage.at("up")).unwrap();
    for path in ["keys/relative", "keys/absolute", "keys/up/outside"] {
        assert!(stage.refused(path).contains("leads out"), "{path}");
    }
}

#[test]
fn a_mount_of_kubernetes_is_followed_when_it_is_swapped() {
    let stage = Stage::new();
    for (version, content) in [("..2026_01", "old"), ("..2026_02", "new")] {
        fs::create_dir(stage.at(version)).unwrap();
        fs::write(stage.at(version).join("secret"), content).unwrap();
    }
    symlink("..2026_01", stage.at("..data")).unwrap();
    symlink("..data/secret", stage.at("secret")).unwrap();
    assert_eq!(stage.read("keys/secret").unwrap(), b"old");
    symlink("..2026_02", stage.at("..data_tmp")).unwrap();
    fs::rename(stage.at("..data_tmp"), stage.at("..data")).unwrap();
    assert_eq!(stage.read("keys/secret").unwrap(), b"new");
}

#[test]
fn another_directory_in_the_place_of_the_first_is_followed() {
    let stage = Stage::new();
    fs::write(stage.at("a"), "old").unwrap();
    assert_eq!(stage.read("keys/a").unwrap(), b"old");
    fs::rename(stage.at(""), stage.root.path().join("before")).unwrap();
    assert!(matches!(stage.read("keys/a"), Err(Failure::NotFound)));
    fs::create_dir(stage.at("")).unwrap();
    fs::write(stage.at("a"), "new").unwrap();
    assert_eq!(stage.read("keys/a").unwrap(), b"new");
}

#[test]
fn what_is_no_regular_file_is_refused_and_never_waited_for() {
    let stage = Stage::new();
    let made = std::process::Command::new("mkfifo").arg(stage.at("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(stage.at("socket")).unwrap();
    fs::create_dir(stage.at("directory")).unwrap();
    for path in ["keys/pipe", "keys/socket", "keys/directory"] {
        assert!(stage.refused(path).contains("regular file"), "{path}");
    }
    // Were a pipe put there between the look and the opening, opening it would not wait either.
    let directory = Dir::open_ambient_dir(stage.at(""), ambient_authority()).unwrap();
    assert!(!directory.open_with("pipe", &options()).unwrap().metadata().unwrap().is_file());
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let stage = Stage::new();
    fs::write(stage.at("fits"), [b'x'; 16]).unwrap();
    fs::write(stage.at("large"), [b'x'; 17]).unwrap();
    assert_eq!(stage.read("keys/fits").unwrap().len(), 16);
    assert!(matches!(stage.read("keys/large"), Err(Failure::TooLarge(17))));
    fs::File::create(stage.at("huge")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(stage.read("keys/huge"), Err(Failure::TooLarge(_))));
}

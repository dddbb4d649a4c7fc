//! PgBouncer before a server, in transaction mode: each transaction may get another connection to
//! the server, and nothing that was said outside of one is kept.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::keep::{command, failed, folder, give, is_root, unprivileged};
use crate::{Unavailable, packages};

const PROGRAM: &str = "pgbouncer";
/// Where distributions put it, which is not always on the path.
const FOLDERS: &[&str] = &[
    "/usr/sbin",
    "/usr/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
];

/// Runs it until the pipe is closed, however this process ends. `$1` is the program, `$2` its
/// settings, `$3` the folder to be removed.
const KEEPER: &str = "trap '' INT TERM HUP; \"$1\" \"$2\" & cat >/dev/null; \
     kill -KILL $!; rm -rf \"$3\"";

/// How long it may take until it listens.
const SOON: Duration = Duration::from_secs(30);

/// A pooler that goes when this value goes, or its process.
#[derive(Debug)]
pub struct Pooler {
    address: String,
    keeper: Child,
}

/// The parts of `postgres://user:password@host:port/database`.
struct Parts<'a> {
    user: &'a str,
    password: &'a str,
    host: &'a str,
    port: &'a str,
    database: &'a str,
}

impl Pooler {
    /// What to do where there is none.
    pub const ADVICE: &str = "install PgBouncer (Debian: apt-get install pgbouncer; \
         Fedora: dnf install pgbouncer; macOS: brew install pgbouncer)";

    /// Ends the line of a test that wanted a pooler, among those that wanted something.
    pub const MARK: &str = " (pooler)";

    /// The program: one on the path, or else where distributions put it.
    ///
    /// # Errors
    /// When there is none.
    pub fn find() -> Result<PathBuf, Unavailable> {
        let path = env::var_os("PATH").unwrap_or_default();
        let none = || Unavailable("there is no PgBouncer on this machine".to_owned());
        first(&path, FOLDERS).ok_or_else(none)
    }

    /// Installs the distribution's package, where this process may, and says so.
    ///
    /// # Errors
    /// When it may not, or when that failed.
    pub fn install() -> Result<PathBuf, Unavailable> {
        packages::install("PgBouncer", &[PROGRAM]).map_err(Unavailable)?;
        Pooler::find()
    }

    /// Before the server of this address, with so few connections to it that they are shared.
    ///
    /// # Errors
    /// When there is no PgBouncer on this machine, or it does not start.
    pub fn before(server: &str) -> Result<Pooler, Unavailable> {
        let program = Pooler::find()?;
        let named = || Unavailable("the server's address has no password or port".to_owned());
        let parts = parts(server).ok_or_else(named)?;
        let user = if is_root() {
            Some(unprivileged()?)
        } else {
            None
        };
        let folder = folder(user).map_err(|error| failed("a folder", &error))?;
        let listener = TcpListener::bind("127.0.0.1:0");
        let address = listener.and_then(|listener| listener.local_addr());
        let port = address.map_err(|error| failed("a port", &error))?.port();
        let file = write(&folder, &parts, port)?;
        if let Some(user) = user {
            give(&file, user).map_err(|error| failed("a file", &error))?;
        }
        let mut keeper = command(Path::new("/bin/sh"), user, Path::new("/"));
        keeper.args(["-c", KEEPER, "keeper"]);
        keeper.arg(&program).arg(&file).arg(&folder);
        keeper.stdin(Stdio::piped());
        keeper.stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = keeper.process_group(0).spawn();
        let pooler = Pooler {
            address: format!(
                "postgres://{}@127.0.0.1:{port}/{}?sslmode=disable",
                parts.user, parts.database
            ),
            keeper: keeper.map_err(|error| failed("a shell", &error))?,
        };
        listens(port).then_some(pooler).ok_or_else(|| {
            let said = fs::read_to_string(folder.join("log")).unwrap_or_default();
            Unavailable(format!("PgBouncer does not listen: {}", said.trim()))
        })
    }

    /// `postgres://user@host:port/database`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn first(path: &OsStr, folders: &[&str]) -> Option<PathBuf> {
    let on_path = env::split_paths(path);
    let all = on_path.chain(folders.iter().map(PathBuf::from));
    let mut programs = all.map(|folder| folder.join(PROGRAM));
    programs.find(|program| program.is_file())
}

fn parts(address: &str) -> Option<Parts<'_>> {
    let (who, rest) = address.strip_prefix("postgres://")?.split_once('@')?;
    let (user, password) = who.split_once(':')?;
    let (at, database) = rest.split_once('/')?;
    let (host, port) = at.rsplit_once(':')?;
    let database = database.split('?').next()?;
    Some(Parts {
        user,
        password,
        host,
        port,
        database,
    })
}

fn write(folder: &Path, to: &Parts<'_>, port: u16) -> Result<PathBuf, Unavailable> {
    let (log, file) = (folder.join("log"), folder.join("pgbouncer.ini"));
    let settings = format!(
        "[databases]\n* = host={} port={} user={} password={}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nlogfile = {}\n\
         ignore_startup_parameters = extra_float_digits,options\n",
        to.host,
        to.port,
        to.user,
        to.password,
        log.display()
    );
    fs::write(&file, settings).map_err(|error| failed("a file", &error))?;
    Ok(file)
}

fn listens(port: u16) -> bool {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_on_the_path_comes_first_and_one_beside_it_is_found() {
        let root = env::temp_dir().join(format!("testpg-pooler-{}", std::process::id()));
        let (here, there) = (root.join("here"), root.join("there"));
        for folder in [&here, &there] {
            fs::create_dir_all(folder).expect("a folder");
        }
        let beside = there.to_str().expect("text");
        assert_eq!(first(here.as_os_str(), &[beside]), None);
        fs::write(there.join(PROGRAM), "").expect("a file");
        assert_eq!(
            first(here.as_os_str(), &[beside]),
            Some(there.join(PROGRAM))
        );
        fs::write(here.join(PROGRAM), "").expect("a file");
        assert_eq!(first(here.as_os_str(), &[beside]), Some(here.join(PROGRAM)));
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn an_address_has_five_parts_or_is_not_for_a_pooler() {
        let found = parts("postgres://me:secret@127.0.0.1:5433/shop?sslmode=disable");
        let found = found.expect("parts");
        assert_eq!((found.user, found.password), ("me", "secret"));
        assert_eq!((found.host, found.port), ("127.0.0.1", "5433"));
        assert_eq!(found.database, "shop");
        assert!(parts("postgres://localhost/shop").is_none());
    }
}

//! A server of one's own, and who takes it away.
//!
//! A shell stands beside each server and reads from a pipe whose other end this process holds. When
//! the process ends, for whatever reason, the pipe is closed, and the shell stops the server and
//! removes its folder. It has a process group of its own, so that an interrupt from the keyboard
//! does not reach it.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, io, process};

use crate::{Binaries, Unavailable};

/// Does the server wait for its disk?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// As a real one does.
    On,
    /// For speed, where no test cuts the power.
    Off,
}

/// Times that a free port is looked for: another process may take it first.
const PORTS: usize = 5;

/// The one who waits for the end of the pipe. `$1` is `pg_ctl`, `$2` the server's data, `$3` the
/// folder to be removed.
const KEEPER: &str = "trap '' INT TERM HUP; cat >/dev/null; \
     \"$1\" -D \"$2\" -m immediate stop; rm -rf \"$3\"";

/// A server that goes when this value goes, or its process.
#[derive(Debug)]
pub struct Server {
    binaries: Binaries,
    folder: PathBuf,
    user: Option<User>,
    sync: Sync,
    port: u16,
    password: String,
    address: String,
    keeper: Child,
    door: Door,
}

/// Who may come in, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Who knows the password, at a port that is free.
    Locked,
    /// Everybody on this machine, at this port.
    Open(u16),
}

/// Whom the server runs as, where this process is the administrator: servers refuse to be that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    id: u32,
    group: u32,
}

impl Server {
    /// Makes a server in a new folder, and starts it.
    ///
    /// # Errors
    /// When that fails; the server's own words are in the message.
    pub fn start(binaries: &Binaries, sync: Sync) -> Result<Server, Unavailable> {
        Server::begin(binaries, sync, Door::Locked)
    }

    /// The same at a given port, for programs that know no password: whoever is on this machine may
    /// come in.
    ///
    /// # Errors
    /// When that fails, or somebody listens there already.
    pub fn open_at(binaries: &Binaries, sync: Sync, port: u16) -> Result<Server, Unavailable> {
        Server::begin(binaries, sync, Door::Open(port))
    }

    fn begin(binaries: &Binaries, sync: Sync, door: Door) -> Result<Server, Unavailable> {
        let user = if is_root() {
            Some(unprivileged()?)
        } else {
            None
        };
        let folder = folder(user).map_err(|error| failed("a folder", &error))?;
        let password = random().map_err(|error| failed("a password", &error))?;
        let keeper = keeper(binaries, &folder, user);
        let mut server = Server {
            binaries: binaries.clone(),
            user,
            sync,
            port: 0,
            password,
            address: String::new(),
            keeper: keeper.map_err(|error| failed("a shell", &error))?,
            folder,
            door,
        };
        server.fill()?;
        let mut tries = match door {
            Door::Locked => PORTS,
            Door::Open(_) => 1,
        };
        loop {
            server.choose_port()?;
            match server.start_again() {
                Ok(()) => return Ok(server),
                Err(_) if tries > 1 => tries -= 1,
                Err(why) => return Err(why),
            }
        }
    }

    /// `postgres://user:password@host:port/database`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it listens, on this machine only.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same server behind another port: that of a proxy.
    #[must_use]
    pub fn address_at(&self, port: u16) -> String {
        let password = &self.password;
        format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// Stops it as a crash does: no checkpoint, nothing said to those who are connected.
    ///
    /// # Errors
    /// When that fails.
    pub fn stop_at_once(&self) -> Result<(), Unavailable> {
        self.control(&["-m", "immediate", "-w", "stop"])
    }

    /// Starts it where it was stopped.
    ///
    /// # Errors
    /// When that fails.
    pub fn start_again(&self) -> Result<(), Unavailable> {
        let log = self.folder.join("log");
        let log = log.to_string_lossy();
        self.control(&["-l", &log, "-w", "-t", "60", "start"])
    }

    /// Starts it again as a replica whose primary is out of reach: it can be read only.
    ///
    /// # Errors
    /// When that fails.
    pub fn start_as_replica(&self) -> Result<(), Unavailable> {
        self.control(&["-m", "fast", "-w", "stop"])?;
        let signal = self.data().join("standby.signal");
        fs::write(signal, "").map_err(|error| failed("a file", &error))?;
        self.start_again()
    }

    fn control(&self, arguments: &[&str]) -> Result<(), Unavailable> {
        let mut command = command(&self.binaries.program("pg_ctl"), self.user, &self.folder);
        command.arg("-D").arg(self.data()).args(arguments);
        // The server inherits what it is given: it must not hold anybody's output open.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(|error| failed("pg_ctl", &error))?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let asked = arguments.last().unwrap_or(&"");
        Err(Unavailable(format!(
            "the server's {asked} failed: {}",
            last.join(" / ")
        )))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Makes the files of the server. Its texts are sorted as those of people are, where it can:
    /// whoever forgets to say how they are sorted should notice.
    fn fill(&self) -> Result<(), Unavailable> {
        let secret = self.folder.join("password");
        fs::write(&secret, &self.password).map_err(|error| failed("a file", &error))?;
        if let Some(user) = self.user {
            give(&secret, user).map_err(|error| failed("a file", &error))?;
        }
        let sorted = ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C"];
        if self.initdb(&secret, &sorted).is_ok() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(self.data());
        self.initdb(&secret, &["--no-locale"])
    }

    fn initdb(&self, secret: &Path, locale: &[&str]) -> Result<(), Unavailable> {
        let mut command = command(&self.binaries.program("initdb"), self.user, &self.folder);
        let auth = match self.door {
            Door::Locked => "--auth=scram-sha-256",
            Door::Open(_) => "--auth=trust",
        };
        command.args(["--username=postgres", auth]);
        command.args(["--encoding=UTF8", "--no-sync", "--no-instructions"]);
        command.arg("--pwfile").arg(secret).args(locale);
        command.arg("-D").arg(self.data());
        let output = command.output().map_err(|error| failed("initdb", &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Unavailable(format!("initdb failed: {}", said.trim())))
    }

    /// Writes what differs from a server's defaults.
    fn choose_port(&mut self) -> Result<(), Unavailable> {
        let wanted = match self.door {
            Door::Locked => 0,
            Door::Open(port) => port,
        };
        let listener = TcpListener::bind(("127.0.0.1", wanted));
        let address = listener.and_then(|listener| listener.local_addr());
        self.port = address.map_err(|error| failed("a port", &error))?.port();
        self.address = self.address_at(self.port);
        let settings = settings(self.port, self.sync, &self.folder);
        let file = self.data().join("postgresql.auto.conf");
        fs::write(file, settings).map_err(|error| failed("a file", &error))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn settings(port: u16, sync: Sync, folder: &Path) -> String {
    // What is not to outlast the machine needs no copies of pages.
    let kept = match sync {
        Sync::On => "fsync = on\n",
        Sync::Off => "fsync = off\nfull_page_writes = off\n",
    };
    format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
         max_connections = 300\nlog_min_messages = warning\njit = off\n{kept}",
        folder.display()
    )
}

/// Is this process the administrator's?
pub(crate) fn is_root() -> bool {
    // What this process makes belongs to whom it belongs to.
    fs::metadata("/proc/self").map_or_else(|_| whoami_is_root(), |own| own.uid() == 0)
}

fn whoami_is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

pub(crate) fn unprivileged() -> Result<User, Unavailable> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = ["postgres", "nobody"]
        .iter()
        .find_map(|name| user(&users, name));
    found.ok_or_else(|| {
        let why = "PostgreSQL does not run as root, and there is no user postgres or nobody";
        Unavailable(why.to_owned())
    })
}

/// A line of the list of users is name, password, id, group, and more.
fn user(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let id = fields.nth(1)?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        Some(User { id, group })
    })
}

/// A new folder that only the server's user may enter.
pub(crate) fn folder(user: Option<User>) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("roundel-pg-{}-{number}-{}", process::id(), &random()?[..8]);
    let folder = env::temp_dir().join(name);
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    if let Some(user) = user {
        give(&folder, user)?;
    }
    Ok(folder)
}

pub(crate) fn give(path: &Path, user: User) -> io::Result<()> {
    chown(path, Some(user.id), Some(user.group))
}

/// Thirty-two digits that nobody guesses.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn command(program: &Path, user: Option<User>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    // Where the caller has settings of its own for servers, they are not meant for this one.
    for (name, _) in env::vars_os().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    if let Some(user) = user {
        command.uid(user.id).gid(user.group);
    }
    command
}

fn is_setting(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("PG")
}

fn keeper(binaries: &Binaries, folder: &Path, user: Option<User>) -> io::Result<Child> {
    // Not in the folder that it removes.
    let mut command = command(Path::new("/bin/sh"), user, Path::new("/"));
    command.args(["-c", KEEPER, "keeper"]);
    command.arg(binaries.program("pg_ctl"));
    command.arg(folder.join("data")).arg(folder);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn()
}

pub(crate) fn failed(what: &str, error: &io::Error) -> Unavailable {
    Unavailable(format!(
        "{what} for a test server could not be had: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users = "root:x:0:0::/:/bin/sh\npostgresx:x:7:8::/:\npostgres:x:101:104:P,,:/var:/b\n";
        let id = 101;
        assert_eq!(user(users, "postgres"), Some(User { id, group: 104 }));
        assert_eq!(user(users, "nobody"), None);
    }

    #[test]
    fn no_two_folders_or_passwords_are_the_same() {
        assert_ne!(random().expect("digits"), random().expect("digits"));
    }
}

//! The real server, as users start it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::Folder;

/// A running server; it is killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    pub(crate) grpc: String,
}

impl Server {
    /// Serves a folder on ports of its own.
    pub(crate) fn start(folder: &Folder, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
        command.arg("serve").arg(folder.path(".")).args(["--address", "127.0.0.1"]);
        command.args(["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]).args(options);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FERMATA_")) {
            command.env_remove(name);
        }
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (mut log, mut url, mut grpc) = (String::new(), None, None);
        for line in lines.by_ref().map_while(Result::ok) {
            log += &line;
            log.push('\n');
            if let Some((_, address)) = line.split_once("http listens address=") {
                url = Some(format!("http://{}", address.trim()));
            }
            if let Some((_, address)) = line.split_once("grpc listens address=") {
                grpc = Some(format!("grpc://{}", address.trim()));
            }
            if line.contains("started") {
                break;
            }
        }
        let (Some(url), Some(grpc)) = (url, grpc) else { panic!("it does not listen:\n{log}") };
        // Whoever does not read a log stops its writer.
        thread::spawn(move || lines.for_each(drop));
        Self { process, url, grpc }
    }

    /// The head and the body of an answer.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        let address = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Ends it as users do.
    pub(crate) fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

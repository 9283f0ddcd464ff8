// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Sends hostile datagrams to a metaroce device, from outside of the module. It writes them with the engine's
//! own encoder, so that it lies in the right places.
//!
//! ```text
//! metaroce-netfuzz blind  --to ADDRESS [options]       knows no connection; many source addresses with --sources
//! metaroce-netfuzz peer   --to ADDRESS --victim FILE   shakes hands properly, then lies about everything
//! metaroce-netfuzz replay --to ADDRESS --capture FILE  sends what a capture of real traffic holds, again
//! options: --port N  --seed N  --seconds N  --count N (at least)  --sources A.B (a /16)  --stop FILE
//! ```
//!
//! At the end it prints one line `sent CLASS COUNT` for each class of datagrams. What it sends follows from the seed and, for
//! `peer`, from what the victim answers.

mod forge;
mod peer;
mod replay;
mod rng;

use forge::{Class, Forger, NAMES};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Datagrams between looks at clock and files.
const ROUND: u32 = 64;

/// What the command line says.
pub struct Options {
    words: HashMap<String, String>,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = HashMap::new();
        let mut args = args.peekable();
        while let Some(name) = args.next() {
            let name = name
                .strip_prefix("--")
                .ok_or(format!("unexpected argument: {name}"))?;
            let value = args.next().ok_or(format!("--{name} needs a value"))?;
            words.insert(name.to_string(), value);
        }
        Ok(Self { words })
    }

    /// The text of an option.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        self.words
            .get(name)
            .map(String::as_str)
            .ok_or(format!("--{name} is missing"))
    }

    /// A number, or what is taken without it.
    pub fn number(&self, name: &str, otherwise: u64) -> Result<u64, String> {
        match self.words.get(name) {
            None => Ok(otherwise),
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} is not a number: {text}")),
        }
    }
}

/// Counts, and says when it is over.
pub struct Progress {
    sent: [u64; NAMES.len()],
    refused: u64,
    until: Instant,
    count: u64,
    stop: Option<String>,
}

impl Progress {
    fn new(options: &Options) -> Result<Self, String> {
        Ok(Self {
            sent: [0; NAMES.len()],
            refused: 0,
            until: Instant::now() + Duration::from_secs(options.number("seconds", 10)?),
            count: options.number("count", 0)?,
            stop: options.words.get("stop").cloned(),
        })
    }

    /// Sends a datagram and counts it.
    pub fn send(&mut self, socket: &UdpSocket, to: SocketAddr, class: Class, bytes: &[u8]) {
        match socket.send_to(bytes, to) {
            Ok(_) => self.sent[class as usize] += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Whether enough has been sent for long enough, or a file says stop.
    pub fn over(&self) -> bool {
        if self.stop.as_ref().is_some_and(|f| Path::new(f).exists()) {
            return true;
        }
        Instant::now() >= self.until && self.sent.iter().sum::<u64>() >= self.count
    }

    fn print(&self) {
        for (name, n) in NAMES.iter().zip(self.sent) {
            println!("sent {name}: {n}");
        }
        println!("not sent (error of the socket): {}", self.refused);
        println!("sent in all: {}", self.sent.iter().sum::<u64>());
    }
}

/// A socket at any address of the family.
pub fn socket_for(to: SocketAddr) -> Result<UdpSocket, String> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).map_err(|e| format!("no socket: {e}"))
}

/// Knows no connection. With `--sources A.B`, each round comes from another address of that /16.
fn blind(options: &Options, to: SocketAddr, progress: &mut Progress) -> Result<(), String> {
    let mut forger = Forger::new(options.number("seed", 1)?);
    let prefix = match options.text("sources") {
        Ok(text) => {
            let (a, b) = text.split_once('.').ok_or("--sources takes A.B")?;
            let number = |s: &str| s.parse::<u8>().map_err(|_| format!("--sources: {s}"));
            Some((number(a)?, number(b)?))
        }
        Err(_) => None,
    };
    let mut socket = socket_for(to)?;
    for (class, bytes) in forger.sweep() {
        progress.send(&socket, to, class, &bytes);
    }
    while !progress.over() {
        for n in 0..ROUND {
            if let (Some((a, b)), 0) = (prefix, n % 4) {
                let address = Ipv4Addr::new(a, b, forger.rng.u8(), forger.rng.u8());
                if let Ok(other) = UdpSocket::bind((address, 0)) {
                    socket = other;
                }
            }
            // A stranger floods with what begins a connection.
            let (class, bytes) = forger.datagram();
            progress.send(&socket, to, class, &bytes);
        }
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().ok_or("which mode? blind, peer or replay")?;
    let options = Options::parse(args)?;
    let address: IpAddr = options
        .text("to")?
        .parse()
        .map_err(|_| "--to is not an address".to_string())?;
    let port = u16::try_from(options.number("port", 4794)?).map_err(|_| "--port is too large")?;
    let to = SocketAddr::new(address, port);
    let mut progress = Progress::new(&options)?;
    match mode.as_str() {
        "blind" => blind(&options, to, &mut progress)?,
        "peer" => peer::run(&options, to, &mut progress)?,
        "replay" => replay::run(&options, to, &mut progress)?,
        _ => return Err(format!("no such mode: {mode}")),
    }
    progress.print();
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("metaroce-netfuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

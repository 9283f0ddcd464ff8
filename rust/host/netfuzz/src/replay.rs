// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Sends captured datagrams again, byte for byte: what anybody can do who sees the traffic and does not
//! change it. The capture is read anew when its file has been replaced.

use crate::{forge::Class, rng::Rng, socket_for, Options, Progress};
use std::{fs, net::SocketAddr, time::SystemTime};

/// Bytes of a pcap file's header and of a packet's.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
const ETHERNET: usize = 14;

/// UDP payloads towards `to` in a capture of Ethernet frames with IPv4.
fn payloads(file: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
    let SocketAddr::V4(to) = to else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut at = FILE_HEADER;
    while let Some(length) = file.get(at + 8..at + 12) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let begin = at + PACKET_HEADER;
        let Some(frame) = file.get(begin..begin + length) else {
            break;
        };
        at = begin + length;
        let Some(ip) = frame.get(ETHERNET..) else {
            continue;
        };
        if frame[12..14] != [8, 0] || ip.len() < 28 || ip[9] != 17 || ip[16..20] != to.ip().octets()
        {
            continue;
        }
        let udp = usize::from(ip[0] & 15) * 4;
        let Some(datagram) = ip.get(udp..) else {
            continue;
        };
        if datagram.len() > 8 && datagram[2..4] == to.port().to_be_bytes() {
            out.push(datagram[8..].to_vec());
        }
    }
    out
}

/// See the module's description.
pub fn run(options: &Options, to: SocketAddr, progress: &mut Progress) -> Result<(), String> {
    let file = options.text("capture")?;
    let mut rng = Rng::new(options.number("seed", 1)?);
    let socket = socket_for(to)?;
    let mut stamp = SystemTime::UNIX_EPOCH;
    let mut packets: Vec<Vec<u8>> = Vec::new();
    while !progress.over() {
        let now = fs::metadata(file).and_then(|m| m.modified());
        if let Ok(now) = now {
            if now != stamp {
                stamp = now;
                let bytes = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
                packets = payloads(&bytes, to);
            }
        }
        if packets.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            continue;
        }
        for _ in 0..crate::ROUND {
            let first = rng.below(packets.len() as u32) as usize;
            let run = 1 + rng.below(16) as usize;
            for bytes in packets.iter().skip(first).take(run) {
                progress.send(&socket, to, Class::Replay, bytes);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_datagrams_towards_the_port() {
        let mut frame = vec![0u8; ETHERNET];
        frame[12] = 8;
        let mut ip = vec![0u8; 20];
        (ip[0], ip[9]) = (0x45, 17);
        ip[16..20].copy_from_slice(&[10, 0, 0, 1]);
        frame.extend(ip);
        frame.extend([0, 9, 0x12, 0xba, 0, 11, 0, 0, 1, 2, 3]);
        let mut file = vec![0u8; FILE_HEADER];
        let mut header = [0u8; PACKET_HEADER];
        header[8..12].copy_from_slice(&(frame.len() as u32).to_le_bytes());
        file.extend(header);
        file.extend(&frame);
        let to = |port| SocketAddr::new([10, 0, 0, 1].into(), port);
        assert_eq!(payloads(&file, to(4794)), [vec![1, 2, 3]]);
        assert!(payloads(&file, to(4795)).is_empty());
        // A file that is still being written.
        assert!(payloads(&file[..file.len() - 1], to(4794)).is_empty());
    }
}

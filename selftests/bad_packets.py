#!/usr/bin/env python3
"""Sends hostile UDP datagrams: every short length, random contents, changed
copies of what a capture of real traffic holds."""

import argparse
import random
import socket
import struct


def payloads(rng, count, samples):
    for length in range(0, 130):
        yield bytes(length)
        yield b"\xff" * length
        yield rng.randbytes(length)
    for length in (1400, 1471, 1472):
        yield bytes(length)
        yield rng.randbytes(length)
    # Every first byte, so every version and type that a header may name.
    for first in range(256):
        for second in (0, 1, 2, 0x7f, 0xff):
            yield bytes([first, second]) + rng.randbytes(62)
    for sample in samples:
        for cut in range(len(sample)):
            yield sample[:cut]
    for number in range(count):
        if samples and number % 2:
            data = bytearray(rng.choice(samples))
            for _ in range(rng.randint(1, 6)):
                if data:
                    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.getrandbits(8)))
            yield bytes(data[:rng.randint(0, len(data))] if rng.random() < 0.2 else data)
        else:
            yield rng.randbytes(rng.randint(0, 1472))


def read_capture(path, port):
    """UDP payloads towards the port from a pcap file of Ethernet frames."""
    result = []
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return result
    offset = 24
    while offset + 16 <= len(data):
        length = struct.unpack_from("<I", data, offset + 8)[0]
        frame = data[offset + 16:offset + 16 + length]
        offset += 16 + length
        if frame[12:14] == b"\x08\x00" and frame[23] == 17:
            udp = 14 + (frame[14] & 15) * 4
            if struct.unpack_from("!H", frame, udp + 2)[0] == port:
                result.append(frame[udp + 8:])
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--capture", default="")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    samples = read_capture(args.capture, args.port)
    rng.shuffle(samples)
    samples = [s[:200] for s in samples[:24]] + samples[24:32]
    sock = socket.socket(socket.AF_INET6 if ":" in args.address else socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0
    for data in payloads(rng, args.count, samples):
        try:
            sock.sendto(data, (args.address, args.port))
            sent += 1
        except OSError:
            pass
    print(f"sent {sent} datagrams, {len(samples)} samples from the capture")


main()

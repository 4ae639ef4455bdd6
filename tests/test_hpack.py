"""Differential tests of HPACK: random blocks of header fields are the same to python-hpack and to the server, which
decodes each connection's blocks with one table. Failures print the seed."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import hpack
import hpack.exceptions
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from http2_frames import PREFACE
from http2_peer import DATA, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame
from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

ECHO = """
import json

async def app(scope, receive, send):
    assert scope["type"] == "http"
    fields = json.dumps([[name.hex(), value.hex()] for name, value in scope["headers"]]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": fields})
"""

TABLE_SIZE = 4096
COMPRESSION_ERROR = 9
PSEUDO = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"a")]
NAMES = [b"accept", b"user-agent", b"referer", b"x-a", b"x-b", b"x-" + b"long" * 20]
HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)

Fields = list[tuple[bytes, bytes]]


def integer(value: int, bits: int, first: int, padding: int = 0) -> bytes:
    """An integer (RFC 7541 section 5.1) behind the bits of ``first``; ``padding``: superfluous bytes at its end."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128 or padding:
        padding -= value < 128
        out.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*out, value])


class Maker:
    """Makes blocks of one connection. Its table is that of a python-hpack decoder that reads each block."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.decoder = hpack.Decoder()

    def string(self, text: bytes) -> bytes:
        if self.choice.random() < 0.5:
            coded: bytes = HUFFMAN.encode(text)
            return integer(len(coded), 7, 0x80) + coded
        return integer(len(text), 7, 0, self.choice.choice((0, 0, 1)) if len(text) >= 127 else 0) + text

    def resize(self) -> bytes:
        """Up to two changes of the table's size, the second one larger."""
        if self.choice.random() < 0.8:
            return b""
        sizes = sorted(self.choice.choices((0, 60, 200, 1000, TABLE_SIZE), k=self.choice.choice((1, 2))))
        return b"".join(integer(size, 5, 0x20) for size in sizes)

    def block(self, fields: Fields) -> bytes:
        block = self.resize()
        # The entries of a table whose size this block changes are not known here.
        is_known = not block
        added = 0
        entries = [*hpack.table.HeaderTable.STATIC_TABLE, *self.decoder.header_table.dynamic_entries]
        for name, value in fields:
            indexes = [at for at, entry in enumerate(entries, 1) if entry == (name, value)]
            names = [at for at, entry in enumerate(entries, 1) if entry[0] == name]
            usable = [at for at in indexes if at <= 61 or (is_known and not added)]
            if usable and self.choice.random() < 0.7:
                block += integer(self.choice.choice(usable), 7, 0x80)
                continue
            bits, first = self.choice.choice(((6, 0x40), (6, 0x40), (4, 0), (4, 0x10)))
            usable = [at for at in names if at <= 61 or (is_known and not added)]
            index = self.choice.choice(usable) if usable and self.choice.random() < 0.7 else 0
            block += integer(index, bits, first) + (b"" if index else self.string(name)) + self.string(value)
            added += first == 0x40
        return block

    def fields(self) -> Fields:
        more = []
        for _ in range(self.choice.randrange(12)):
            length = self.choice.choice((0, 1, 5, 40, 300))
            value = bytes(self.choice.choice(b"abcdef019:/=;,%~\\\xe9") for _ in range(length))
            more.append((self.choice.choice(NAMES), self.choice.choice((value, b"the same"))))
        return PSEUDO + more


class Connection:
    """One connection that sends blocks as HEADERS and waits for what answers each."""

    def __init__(self, site: Running) -> None:
        self.peer = Peer.connect(site.host, site.port)
        self.peer.send(PREFACE + frame(SETTINGS))
        self.buffer = b""
        self.next = 1

    def ask(self, block: bytes) -> tuple[int, bytes | int]:
        """Return the type of the frame that decided, and the body (DATA) or the error code."""
        stream, self.next = self.next, self.next + 2
        self.peer.send(frame(HEADERS, 5, stream, block))
        body = b""
        while True:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                received = self.peer.sock.recv(65536)
                assert received, "the server closed the connection without GOAWAY"
                self.buffer += received
            end = 9 + int.from_bytes(self.buffer[:3], "big")
            kind, flags, payload = self.buffer[3], self.buffer[4], self.buffer[9:end]
            self.buffer = self.buffer[end:]
            if kind == DATA:
                body += payload
            if kind in (DATA, HEADERS) and flags & 1:
                return DATA, body
            if kind == RST_STREAM:
                return kind, int.from_bytes(payload, "big")
            if kind == GOAWAY:
                return kind, int.from_bytes(payload[4:8], "big")


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str]) -> Running:
    return serve(write_app(ECHO))


@pytest.mark.parametrize("seed", range(6))
def test_decoders_agree_on_blocks_of_every_representation(site: Running, seed: int) -> None:
    maker = Maker(random.Random(seed))
    connection = Connection(site)
    with connection.peer:
        for number in range(60):
            fields = maker.fields()
            block = maker.block(fields)
            expected = [(bytes(name), bytes(value)) for name, value in maker.decoder.decode(block, raw=True)]
            assert expected == fields, f"seed {seed}, block {number}: {block.hex()}"
            kind, body = connection.ask(block)
            assert kind == DATA, f"seed {seed}, block {number}: {block.hex()}: {body!r}"
            assert isinstance(body, bytes)
            seen = [(bytes.fromhex(name), bytes.fromhex(value)) for name, value in json.loads(body)]
            assert seen == [(b"host", b"a"), *fields[4:]], f"seed {seed}, block {number}: {block.hex()}"


@pytest.mark.parametrize("seed", range(4))
def test_decoders_agree_on_which_changed_blocks_are_malformed(site: Running, seed: int) -> None:
    choice = random.Random(seed)
    refused = 0
    for number in range(60):
        maker = Maker(choice)
        block = bytearray(maker.block(maker.fields()))
        for _ in range(choice.choice((1, 1, 2, 5))):
            at = choice.randrange(len(block))
            change = choice.randrange(3)
            if change == 0:
                block[at] = choice.randrange(256)
            elif change == 1:
                block[at] ^= 1 << choice.randrange(8)
            else:
                del block[at:]
                block += bytes(choice.choice((0x00, 0x7F, 0x80, 0xFF)) for _ in range(choice.randrange(4)))
            if not block:
                block.append(0x80)
        try:
            hpack.Decoder(max_header_list_size=1 << 20).decode(bytes(block), raw=True)
            is_malformed = False
        except hpack.exceptions.HPACKDecodingError:
            is_malformed = True
        connection = Connection(site)
        with connection.peer:
            answer = connection.ask(bytes(block))
        assert (answer == (GOAWAY, COMPRESSION_ERROR)) == is_malformed, (
            f"seed {seed}, block {number}: {block.hex()}: {answer}"
        )
        refused += is_malformed
    assert refused > 5

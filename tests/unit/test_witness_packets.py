"""What the witness reads of packets, and how it counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glasslab_witness.aggregate import MOST, Aggregator
from glasslab_witness.packets import LineError, Packet, parse
from glasslab_witness.tail import ONE_READ, Tail
from witnessplace import NOW, line, packet


def test_a_packet_is_its_header_fields_and_nothing_else() -> None:
    found = packet(number=7, **{"raw.pkt": "SECRET", "udp.csum": 5})
    assert found == Packet(
        "denied", "route", "vmbr1", None, "02:10:00:00:00:10", "10.10.10.10", 40_000, "203.0.113.80", 9, "udp",
        NOW + 0.25, 7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "protocol"),
    [
        ({"ip.protocol": 6}, "tcp"),
        ({"ip.protocol": 132}, "ip-132"),
        ({"ip.protocol": None, "oob.protocol": 2054}, "arp"),
        ({"ip.protocol": None, "oob.protocol": 0x88B5}, "ether-88b5"),
        ({"ip.protocol": None, "oob.protocol": None}, None),
    ],
)
def test_protocols_have_names(fields: dict[str, Any], protocol: str | None) -> None:
    assert packet(**fields).protocol == protocol


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[1]", b"[" * 9000, line(note="x" * 20_000).encode(), b'{"oob.prefix": "glasslab denied x"}'),
        b'{"oob.prefix": "other denied x", "oob.time.sec": 1}',
        b'{"oob.prefix": "glasslab denied x y", "oob.time.sec": 1}',
    ],
)
def test_what_is_no_packet_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(LineError):
        parse(text)


def test_the_first_packet_is_a_frame_at_once_and_the_others_are_counted() -> None:
    counting = Aggregator(10.0)
    assert (counting.add(packet()) or {})["count"] == 1
    assert [counting.add(packet(src_port=port)) for port in (40_000, 40_001, 40_002)] == [None] * 3
    assert counting.due(NOW + 5) == []
    (frame,) = counting.due(NOW + 11)
    assert (frame["count"], frame["source_port"], frame["destination_port"]) == (3, None, 9)
    assert counting.due(NOW + 22) == []
    assert (counting.add(packet()) or {})["count"] == 1, "after a quiet window it is new again"


def test_a_flood_of_all_kinds_stays_a_few_frames_and_every_packet_counts() -> None:
    counting = Aggregator(10.0)
    frames = []
    for number in range(20_000):
        source = f"10.{number % 250}.{number % 199}.1"
        made = counting.add(packet(dest_port=number, src_ip=source, **{"mac.saddr.str": f"02:{number % 97:02x}"}))
        frames += [made] if made else []
    allowed = counting.add(packet(verdict="allowed", flow="model"))
    frames += counting.due(NOW + 11)
    assert sum(frame["count"] for frame in frames) == 20_000
    assert len(frames) <= 2 * MOST["denied"] + 2 * sum(MOST.values())
    assert allowed, "a flood of denied packets hides no allowed flow"


def test_counts_survive_in_the_state() -> None:
    counting, other = Aggregator(10.0), Aggregator(10.0)
    for _ in range(5):
        counting.add(packet())
    for port in range(MOST["denied"]):
        counting.add(packet(dest_port=1000 + port))
    other.restore(json.loads(json.dumps(counting.state())))
    assert other.add(packet()) is None
    assert other.add(packet(dest_port=9999)) is None, "the kinds that are being counted are known"
    assert sorted(frame["count"] for frame in other.due(NOW + 11)) == [2, 5]


def test_a_flood_that_is_over_leaves_room() -> None:
    counting = Aggregator(10.0)
    for port in range(MOST["denied"]):
        assert counting.add(packet(dest_port=port))
    assert counting.due(NOW + 11) == []
    assert counting.add(packet(dest_port=9999))


def test_a_file_is_read_to_its_end_across_rotation(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text(line(1) + "half")
    assert len(tail.read()) == 1
    with path.open("a") as writer:
        writer.write(" and half\n")
        writer.flush()
        path.rename(tmp_path / "flows.json.1")
        path.touch()
        assert tail.read() == [b"half and half"]
        writer.write("into the old one\n")  # its writer has not opened the new one yet
        writer.flush()
        assert tail.read() == [b"into the old one"]
        assert tail.read() == []
    path.write_text(line(2))
    again = Tail(path).resumed(json.loads(json.dumps(tail.position.state())))
    assert len(again.read()) == 1
    assert not again.gap


def test_a_file_that_was_rotated_away_unread_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    path.write_text(line(1))
    tail = Tail(path)
    assert len(tail.read()) == 1
    path.unlink()  # its inode may be given to the next one
    path.write_text(line(2) * 3)
    assert (len(tail.read()), tail.gap) == (3, True)


def test_a_large_file_comes_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "flows.json"
    path.write_text("x" * 99 + "\n")
    with path.open("a") as file:
        file.writelines(["y" * 999 + "\n"] * 2500)
    tail, got = Tail(path), 0
    while lines := tail.read():
        got += len(lines)
        assert sum(map(len, lines)) <= ONE_READ
    assert (got, tail.more) == (2501, False)

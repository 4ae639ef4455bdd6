"""``kirsch help TOPIC`` shows the pages of docs in a terminal, and messages name topics that exist."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kirsch import commands
from kirsch.commands import guides
from kirsch.config.schema import BY_NAME

ROOT = Path(__file__).resolve().parent.parent
TOPICS = guides.topics()


def help_of(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kirsch", "help", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"})


def test_each_guide_is_a_page_of_the_docs_and_is_listed() -> None:
    done = help_of("topics")
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.read_text(encoding="utf-8"): path for path in (ROOT / "docs").rglob("*.md")}
    assert len(TOPICS) > 20
    for topic, title in TOPICS.items():
        assert re.search(rf"^  {topic} +{re.escape(title)}$", done.stdout, re.M)
        text = (Path(guides.FOLDER) / f"{topic}.md").read_text(encoding="utf-8")
        assert text in pages, f"{topic} is not what docs has: build anew"
        pages.pop(text)
    # Every page that a user of the server needs has its topic.
    others = {path.relative_to(ROOT / "docs").parts[0] for path in pages.values()}
    assert others <= {"design", "survey", "survey.md", "bench.md", "reference", "tutorials"}, pages.values()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_guide_has_all_words_of_its_page_and_no_marks(topic: str) -> None:
    text = guides.guide(topic, [], width=80, bold=False)
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert not re.search(r"\]\((?!\))|\*\*\w|^##+ |^```|^\|", outside, re.M)
    page = re.sub(r"<!--.*?-->", "", (Path(guides.FOLDER) / f"{topic}.md").read_text(encoding="utf-8"), flags=re.S)
    words = set(re.findall(r"\w+", re.sub(r"\]\([^)]*\)|^```\w*", "", page, flags=re.M)))
    assert words - set(re.findall(r"\w+", text)) == set()
    long = [line for line in text.splitlines() if len(line) > 80 and not line.startswith("    ")]
    assert [line for line in long if " " in line.strip()] == []


def test_a_word_chooses_the_sections_about_it() -> None:
    done = help_of("waiting", "queue")
    assert done.returncode == 0
    assert done.stdout.startswith("The queue\n---------\n")
    assert "Threads or greenlets" not in done.stdout
    done = help_of("waiting", "bicycles")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the guide waiting has no section about bicycles; kirsch help waiting shows all of it" in done.stderr


@pytest.mark.parametrize("name", ["--graceful-timeout", "graceful-timeout", "graceful_timeout"])
def test_help_of_a_setting_tells_all_about_it(name: str) -> None:
    done = help_of(name)
    assert done.returncode == 0
    assert done.stdout.startswith("--graceful-timeout DURATION\n[default 30s; KIRSCH_GRACEFUL_TIMEOUT]\n")
    prose = BY_NAME["graceful_timeout"].prose
    assert prose in " ".join(done.stdout.split())


def test_on_a_terminal_a_guide_goes_through_the_pager_with_bold_headings() -> None:
    reader, terminal = pty.openpty()
    with open(reader, "rb", buffering=0) as output:
        environment = {**os.environ, "PAGER": "cat", "TERM": "xterm", "COLUMNS": "80"}
        command = [sys.executable, "-m", "kirsch", "help", "platform"]
        process = subprocess.Popen(command, stdout=terminal, stderr=terminal, stdin=terminal, env=environment)
        os.close(terminal)
        found = b""
        try:
            while part := output.read(4096):
                found += part
        except OSError:  # the end, on Linux
            pass
        assert process.wait(timeout=60) == 0
    assert f"\x1b[1m{TOPICS['platform']}\x1b[0m".encode() in found


def test_every_topic_that_a_message_or_a_page_names_exists() -> None:
    known = {*TOPICS, *commands.names(), *BY_NAME, "all", "topics"}
    files = [
        *(ROOT / "packages").glob("*/src/**/*.py"),
        *(ROOT / "crates").glob("*/src/**/*.rs"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
    ]
    named = [
        (path.name, topic)
        for path in files
        for topic in re.findall(r"kirsch help ([a-z][a-z-]+)", path.read_text(encoding="utf-8"))
    ]
    assert len({topic for _, topic in named}) > 3
    assert [each for each in named if each[1] not in known] == []

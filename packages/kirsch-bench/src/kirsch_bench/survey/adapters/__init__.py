"""How each server is installed and started, or why it cannot be.

    base.py       what an adapter is
    python.py     servers in Python that a command or survey_launch.py starts
    kirsch.py     Kirsch in each of its drivers
    behind.py     what stands behind a web server or is one: mod_wsgi, FastCGI, static files
    pairs.py      an application server behind a web server, each protocol that both speak
    gone.py       servers of the founding documents that run nowhere any more, each with its reason

A server that is missing here can still take part: ``adapter = "command"``.
"""

from __future__ import annotations

from kirsch_bench.survey.adapters import behind, gone, kirsch, pairs, python
from kirsch_bench.survey.adapters.base import COMMAND, Adapter, Launch, Program

ADAPTERS: dict[str, Adapter] = {
    each.name: each
    for each in (*kirsch.ADAPTERS, *python.ADAPTERS, *behind.ADAPTERS, *pairs.ADAPTERS, *gone.ADAPTERS, COMMAND)
}

__all__ = ["ADAPTERS", "Adapter", "Launch", "Program"]

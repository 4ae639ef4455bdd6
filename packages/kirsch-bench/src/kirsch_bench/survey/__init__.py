"""``kirsch survey``: comparative measurements of HTTP servers with reliable results.

command.py        the command line, and the order of the work
spec.py           the survey's file: servers, scenarios, interpreters, rounds
adapters/         how each server is installed and started, or why it cannot be
runtime/          what runs inside other interpreters: applications, and a launcher of servers
subjects.py       each server under each interpreter (interpreters.py), in its environment (venvs.py)
rounds.py         the order of the rounds
runner.py         one round of one server: a fresh process on processors of its own (processors.py), under load
null.py           the bare loop that shows the generator's own limit
records.py        what is measured, one line of JSON for each round
store.py          those lines: an interrupted survey continues from there
statistics.py     intervals and ranks
results.py        everything that the reports show, computed from the rounds
tables.py, historical.py, page.py, report.py        the reports: text, HTML, JSON
"""

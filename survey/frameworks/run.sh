#!/usr/bin/env bash
# Surveys twelve frameworks on 12 pages, with SQLite and a PostgreSQL of its own: about an hour. One environment has Kirsch
# and the WSGI frameworks; those on uvicorn get theirs from the survey. `--rounds 1 --seconds 0.5` shows that it works.
#
#   survey/frameworks/run.sh PYTHON WHEELS [ARGUMENT OF run.py]...
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 wheels=$2 venv=.venvs/frameworks out=target/survey/frameworks
shift 2
scripts/environment.sh $venv "$python" --force-reinstall --no-deps "$wheels"/kirsch{,-bench}/*.whl \
    --editable packages/kirsch-web --editable packages/kirsch-cherrypy
scripts/environment.sh $venv "$python" -r survey/frameworks/packages.txt
$venv/bin/python survey/frameworks/run.py --check
$venv/bin/python survey/frameworks/run.py --out $out "$@"
mkdir -p docs/survey/frameworks
cp $out/survey.{txt,html} docs/survey/frameworks

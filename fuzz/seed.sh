#!/usr/bin/env bash
# Copies the cases of tests/corpus into fuzz/corpus/<target>, where the fuzzer keeps what it finds. Inputs are
# streams as a peer sends them, so a case is a seed as it is; for `chunked` it is what stands behind the first blank line.
#
#   fuzz/seed.sh [TARGET...]     default: every target
#   CORPUS=/tmp/x fuzz/seed.sh   copies them to another folder than fuzz/corpus
set -euo pipefail
cd "$(dirname "$0")"
CORPUS=${CORPUS:-corpus}

[ $# -gt 0 ] || set -- head chunked connection response answers proxy forwarded fastcgi uwsgi scgi files websocket handshake hpack http2 frames tls
for target in "$@"; do
    mkdir -p "$CORPUS/$target"
    case $target in
    response | answers) cases=(seeds/response/*.http) ;;
    proxy) cases=(../tests/corpus/proxy/{valid,invalid}/*.bin) ;;
    fastcgi | uwsgi | scgi) cases=(../tests/corpus/gateways/"$target"/*.bytes) ;;
    tls) cases=(seeds/tls/*.bin) ;;
    hpack) cases=(seeds/hpack/*.bin) ;;
    http2 | frames) cases=(seeds/http2/*.bin) ;; # `frames` takes any bytes for choices
    files) cases=(seeds/files/*.txt) ;;
    websocket) cases=(../tests/corpus/websocket/frames/*.bytes) ;;
    handshake) cases=(../tests/corpus/websocket/handshakes/*.http) ;;
    forwarded) cases=(../tests/corpus/forwarded/*.http) ;;
    *) cases=(../tests/corpus/http1/{valid,invalid}/*.http) ;;
    esac
    for case in "${cases[@]}"; do
        name=$(basename "$(dirname "$case")")-$(basename "$case")
        if [ "$target" = chunked ]; then
            grep -qia '^transfer-encoding' "$case" || continue
            # A head's lines are text; the rest must come through byte for byte.
            LC_ALL=C sed '1,/^\r$/d' "$case" >"$CORPUS/$target/$name"
        elif [ "$target" = handshake ]; then
            # The target writes the request line, Host and the blank line.
            tail -n +3 "$case" | head -n -1 >"$CORPUS/$target/$name"
        elif [ "$target" = forwarded ]; then
            # Behind the request line and Host.
            tail -n +3 "$case" >"$CORPUS/$target/$name"
        else
            cp "$case" "$CORPUS/$target/$name"
        fi
    done
    echo "$target: $(find "$CORPUS/$target" -type f | wc -l) seeds and finds"
done

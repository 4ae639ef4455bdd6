"""A server with a chosen behaviour: ``survey_stub.py HOW HOST PORT``. Nothing of Kirsch is in it.

ok          answers
dies        answers ten requests and dies
stalls      answers ten requests and then none
garbage     speaks no HTTP
turns       answers ten requests and then speaks no HTTP
error       answers 500
deaf        runs and never listens
breaks      ends at once, with a word on why
forks       answers by a child that it leaves behind
stubborn    answers, has a child, and neither ends when asked to
"""

import os
import signal
import socket
import sys
import threading
import time

BODY = b"Hello World!"
HEALTHY = 10


def main() -> None:
    how, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if how == "breaks":
        print("one line\nsurvey_stub: cannot find the moon", file=sys.stderr)
        sys.exit(7)
    if how == "deaf":
        time.sleep(600)
    if how == "forks" and os.fork():
        os._exit(0)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(600)
    with socket.create_server((host, port), backlog=128) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, how), daemon=True).start()


answered = 0


def serve(connection: socket.socket, how: str) -> None:
    affinity = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    status = "500 Internal Server Error" if how == "error" else "200 OK"
    head = f"HTTP/1.1 {status}\r\nX-Processors: {affinity}\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    waiting = b""
    with connection:
        while True:
            try:
                data = connection.recv(65536)
                if not data:
                    return
                waiting += data
                while b"\r\n\r\n" in waiting:
                    asked, _, waiting = waiting.partition(b"\r\n\r\n")
                    connection.sendall(answer(how, head + BODY))
                    if b"Connection: close" in asked:
                        return
            except OSError:
                return


def answer(how: str, right: bytes) -> bytes:
    global answered
    answered += 1
    if how == "garbage" or (how == "turns" and answered > HEALTHY):
        return b"220 mail.example ESMTP\r\n"
    if how == "dies" and answered > HEALTHY:
        os._exit(3)
    if how == "stalls" and answered > HEALTHY:
        time.sleep(600)
    return right


if __name__ == "__main__":
    main()

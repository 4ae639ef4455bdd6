/* The floor: one thread, epoll, recv, find the blank line, send fixed bytes. It parses nothing, routes nothing and runs
   no Python. A server's processor time for a request is quoted as a multiple of this program's, measured in the same run
   on the same processor.

   Usage: floor PORT [BODY_BYTES | messages BYTES]

   With BODY_BYTES each response carries so many bytes. Requests are not pipelined then, and sockets block, so that one
   send takes the whole response. With messages it answers a WebSocket's handshake, and then each masked message of so
   many bytes with a message of fixed bytes. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DATE_AND_SERVER "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: floor\r\n"
#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n" DATE_AND_SERVER

static const char reply[] = HEAD "\r\nMy Own Hello World!";
static const char last_reply[] = HEAD "Connection: close\r\n\r\nMy Own Hello World!";

enum { REPLY_SIZE = sizeof reply - 1 };

static char in[65536], out[64 * REPLY_SIZE];
static char *large;
static size_t large_size;

/* Bytes of a message, bytes of a masked frame, and for each socket how many bytes of the next frame have come. */
static size_t message_size, frame_size, frame_got[65536];

static void make_large_reply(size_t body) {
  large = malloc(body + 256);
  if (!large) exit(1);
  large_size = sprintf(large, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n"
                       DATE_AND_SERVER "\r\n", body);
  memset(large + large_size, 'x', body);
  large_size += body;
}

/* `large` is the frame of a message. */
static void make_message(size_t size) {
  int is_long = size > 125;
  large = malloc(size + 4);
  if (!large || size > 65535) exit(1);
  message_size = size;
  frame_size = size + (is_long ? 8 : 6);
  large[0] = (char)0x82;
  large[1] = is_long ? 126 : size;
  if (is_long) large[2] = size >> 8, large[3] = size;
  large_size = size + (is_long ? 4 : 2);
  memset(large + large_size - size, 'x', size);
}

static int listen_on(int port) {
  int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (void *)&at, sizeof at) || listen(listener, 4096)) {
    perror("floor: listen");
    exit(1);
  }
  return listener;
}

static void watch(int epoll, int fd) {
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd});
}

static void accept_all(int epoll, int listener) {
  int one = 1;
  for (int fd; (fd = accept4(listener, 0, 0, large ? 0 : SOCK_NONBLOCK)) >= 0;) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(epoll, fd);
  }
}

static void answer_messages(int fd, size_t got) {
  static const char upgrade[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
  if (!memcmp(in, "GET ", 4)) {
    frame_got[fd] = 0;
    send(fd, upgrade, sizeof upgrade - 1, MSG_NOSIGNAL);
    return;
  }
  for (frame_got[fd] += got; frame_got[fd] >= frame_size; frame_got[fd] -= frame_size)
    send(fd, large, large_size, MSG_NOSIGNAL);
}

static void answer(int fd) {
  ssize_t got = recv(fd, in, sizeof in, 0);
  if (got <= 0) {
    if (got < 0 && errno == EAGAIN) return;
    close(fd);
    return;
  }
  if (message_size) {
    answer_messages(fd, got);
    return;
  }
  if (large) {
    if (memmem(in, got, "\r\n\r\n", 4)) send(fd, large, large_size, MSG_NOSIGNAL);
    return;
  }
  if (memmem(in, got, "close\r\n", 7)) {
    send(fd, last_reply, sizeof last_reply - 1, MSG_NOSIGNAL);
    close(fd);
    return;
  }
  size_t filled = 0;
  char *at = in;
  while (filled + REPLY_SIZE <= sizeof out && (at = memmem(at, in + got - at, "\r\n\r\n", 4))) {
    memcpy(out + filled, reply, REPLY_SIZE);
    filled += REPLY_SIZE;
    at += 4;
  }
  if (filled) send(fd, out, filled, MSG_NOSIGNAL);
}

int main(int argc, char **argv) {
  static struct epoll_event ready[256];
  if (argc < 2) {
    fprintf(stderr, "usage: floor PORT [BODY_BYTES | messages BYTES]\n");
    return 2;
  }
  if (argc > 3) {
    make_message(strtoul(argv[3], 0, 10));
  } else if (argc > 2) {
    make_large_reply(strtoul(argv[2], 0, 10));
  }
  int listener = listen_on(atoi(argv[1])), epoll = epoll_create1(0);
  watch(epoll, listener);
  for (;;) {
    int count = epoll_wait(epoll, ready, 256, -1);
    for (int i = 0; i < count; i++) {
      if (ready[i].data.fd == listener) {
        accept_all(epoll, listener);
      } else {
        answer(ready[i].data.fd);
      }
    }
  }
}

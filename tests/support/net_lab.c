/* SPDX-License-Identifier: MIT */
#include "tests/support/net_lab.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/process.h"

enum { CALL_MS = 400 };

/* Words in one text, separated by single blanks. */
static void run(const char *format, ...) PRINTF_LIKE(1, 2);

static void run(const char *format, ...)
{
    char text[256];
    const char *argv[32] = {0};
    struct error err = {0};
    char *rest = NULL;
    size_t count = 0;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *word = strtok_r(text, " ", &rest); word != NULL && count < 31;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, &err) !=
        STATUS_OK)
        ck_abort_msg("%s", err.message);
}

int net_enter(const struct net_node *node)
{
    int back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(back, 0);
    if (node != NULL)
        ck_assert_int_eq(setns(node->netns, CLONE_NEWNET), 0);
    return back;
}

void net_leave(int back)
{
    ck_assert_int_eq(setns(back, CLONE_NEWNET), 0);
    close(back);
}

/* Addresses are usable at once: no duplicate address detection. */
static void quick_ipv6(void)
{
    int fd = open("/proc/sys/net/ipv6/conf/default/accept_dad", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        ck_assert_int_eq(write(fd, "0", 1), 1);
        close(fd);
    }
}

void net_hub_up(void)
{
    /* an address of its own, since a bridge else takes that of a port and changes it */
    run("ip link add br0 address 02:00:00:00:09:01 type bridge");
    run("ip link set br0 up");
    run("ip addr add 10.9.0.1/24 dev br0");
    run("ip -6 addr add fd09::1/64 dev br0 nodad");
}

static void make_namespace(struct net_node *node)
{
    int back = net_enter(NULL);

    ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
    node->netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(node->netns, 0);
    quick_ipv6();
    run("ip link set lo up");
    net_leave(back);
}

static void remove_leftover(const char *device)
{
    const char *argv[] = {"ip", "link", "del", device, NULL};
    struct error err = {0};

    if (process_run(&(struct process_spec){.argv = argv, .timeout_ms = 10000}, NULL, &err) !=
        STATUS_OK)
        ck_assert_int_eq(err.code, STATUS_FAILED);
}

void net_node_up(struct net_node *node, int number)
{
    char address[32];

    *node = (struct net_node){.number = number};
    snprintf(address, sizeof address, "port%d", number);
    remove_leftover(address); /* of a test that failed */
    make_namespace(node);
    /* always the same hardware address: a node that comes again is known to its neighbours */
    run("ip link add port%d type veth peer name eth0 address 02:00:00:00:09:%02x netns "
        "/proc/%d/fd/%d",
        number, (unsigned) number, (int) getpid(), node->netns);
    run("ip link set port%d master br0 up", number);
    int back = net_enter(node);
    run("ip link set eth0 up");
    run("ip addr add 10.9.0.%d/24 dev eth0", number);
    run("ip -6 addr add fd09::%d/64 dev eth0 nodad", number);
    net_leave(back);
    snprintf(address, sizeof address, "10.9.0.%d", number);
    int64_t deadline_ns = deadline_in_ms(10000);
    while (net_call(NULL, address, 1) != TCP_REFUSED)
        ck_assert_msg(!deadline_passed(deadline_ns), "%s never answered", address);
}

void net_node_down(struct net_node *node)
{
    if (node->netns <= 0)
        return;
    for (int i = 0; i < node->listener_count; i++)
        close(node->listeners[i]);
    run("ip link del port%d", node->number);
    close(node->netns);
    *node = (struct net_node){0};
}

void net_plug(const struct net_node *node, bool plugged)
{
    run("ip link set port%d %s", node->number, plugged ? "up" : "down");
}

int net_listen(struct net_node *node, int port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t) port)};
    int yes = 1, back = net_enter(node);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *) &any, sizeof any), 0);
    ck_assert_int_eq(listen(fd, 64), 0);
    net_leave(back);
    if (node != NULL) {
        ck_assert_int_lt(node->listener_count, NET_LISTENERS);
        node->listeners[node->listener_count++] = fd;
    }
    return fd;
}

enum tcp_outcome net_call(const struct net_node *from, const char *address, int port)
{
    enum tcp_outcome outcome = TCP_SILENT;
    int back = net_enter(from);
    enum status status = tcp_probe(address, port, CALL_MS, &outcome, NULL);

    net_leave(back);
    ck_assert_int_eq(status, STATUS_OK);
    return outcome;
}

int net_connect(const struct net_node *from, const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    int back = net_enter(from);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(inet_pton(AF_INET, address, &to.sin_addr), 1);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *) &to, sizeof to), 0);
    net_leave(back);
    return fd;
}

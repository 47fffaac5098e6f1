/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/session.h"
#include "lib/json.h"
#include "lib/owned.h"
#include "tests/support/suite.h"

static const char whole[] =
    "{'protocol':1,'run':'20261130-demo','lease_ms':5000,"
    "'node':{'name':'n1','address':'10.77.0.1','serves_database':true,'cgroup':'lab/n1/postgres',"
    "'volumes':{'data':'/var/lib/postgresql'}},"
    "'peers':[{'name':'n1','address':'10.77.0.1'},{'name':'n2','address':'10.77.0.2'}],"
    "'database':{'version':15,'port':5432,'data':'/nonexistent/data','bin':'/usr/bin',"
    "'start':['pg_ctlcluster','15','main','start'],'stop':null,"
    "'superuser':{'user':'admin','password_file':'/etc/admin','database':'postgres'},"
    "'workload':{'user':'load','password_file':null,'database':'ordeal'},"
    "'replication':{'user':'repl','password_file':'/etc/repl'},'ssl_root':'/etc/ca.crt'},"
    "'power':{'off':['power','off','{node}'],'cut':null,'on':['power','on','{node}']},"
    "'endpoint':{'hosts':['n2','n1'],'managed':true}}";

static char folder[32];
static struct session *session;

static void setup(void)
{
    strcpy(folder, "/tmp/ordeal-session-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    session = NULL;
}

static void teardown(void)
{
    char path[128];

    session_free(session);
    snprintf(path, sizeof path, "%s/runs/20261130-demo", folder);
    rmdir(path);
    snprintf(path, sizeof path, "%s/runs", folder);
    rmdir(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static json_t *parse(const char *text)
{
    struct error err = {0};
    json_t *json = NULL;
    char *copy = strdup(text);

    for (char *c = copy; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    ck_assert_msg(json_parse_text(copy, strlen(copy), &json, &err) == STATUS_OK, "%s: %s", text,
                  err.message);
    free(copy);
    return json;
}

START_TEST(a_session_holds_what_was_sent)
{
    OWNED_JSON json_t *params = parse(whole);
    struct error err = {0};
    struct stat info;

    ck_assert_msg(session_new(folder, params, &session, &err) == STATUS_OK, "%s", err.message);
    ck_assert_str_eq(session->run, "20261130-demo");
    ck_assert_int_eq(session->lease_ms, 5000);
    ck_assert_str_eq(session->node, "n1");
    ck_assert_uint_eq(session->peer_count, 2);
    ck_assert_str_eq(session_peer(session, "n2")->address, "10.77.0.2");
    ck_assert_ptr_null(session_peer(session, "n3"));
    ck_assert(session->has_database && session->is_database);
    ck_assert_int_eq(session->database.port, 5432);
    ck_assert_str_eq(session->database.owner, "postgres");
    ck_assert_str_eq(session->database.start[3], "start");
    ck_assert_ptr_null(session->database.start[4]);
    ck_assert_ptr_null(session->database.stop);
    ck_assert_str_eq(session->database.cgroup, "lab/n1/postgres");
    ck_assert_str_eq(session->database.replication, "repl");
    ck_assert_ptr_null(session->database.workload_password_file);
    ck_assert_str_eq(session->power_on[2], "{node}");
    ck_assert_ptr_null(session->power_cut);
    ck_assert_str_eq(session->endpoint[0].address, "10.77.0.2");
    ck_assert(session->endpoint_managed);
    ck_assert_int_eq(stat(session->spool, &info), 0);
    ck_assert_int_eq(info.st_mode & 07777, 0700);
}
END_TEST

/* One member at a time is taken away, or is of another type. */
START_TEST(every_member_is_checked)
{
    static const char *const paths[][2] = {
        {NULL, "protocol"},
        {NULL, "run"},
        {NULL, "lease_ms"},
        {NULL, "node"},
        {NULL, "peers"},
        {NULL, "database"},
        {NULL, "power"},
        {NULL, "endpoint"},
        {"node", "name"},
        {"node", "address"},
        {"node", "serves_database"},
        {"database", "version"},
        {"database", "port"},
        {"database", "data"},
        {"database", "bin"},
        {"database", "superuser"},
        {"database", "workload"},
        {"power", "off"},
        {"power", "on"},
        {"endpoint", "hosts"},
        {"endpoint", "managed"},
    };

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        for (int wrong_type = 0; wrong_type < 2; wrong_type++) {
            OWNED_JSON json_t *params = parse(whole);
            json_t *object = paths[i][0] == NULL ? params : json_object_get(params, paths[i][0]);
            struct error err = {0};
            if (wrong_type)
                json_object_set_new(object, paths[i][1], json_real(1.5));
            else
                json_object_del(object, paths[i][1]);
            enum status status = session_new(folder, params, &session, &err);
            ck_assert_msg(status == STATUS_INVALID, "%s %d: %s", paths[i][1], wrong_type,
                          status == STATUS_OK ? "accepted" : err.message);
            ck_assert_ptr_null(session);
        }
}
END_TEST

START_TEST(bad_values_are_refused)
{
    static const struct {
        const char *object, *member, *value, *says;
    } cases[] = {
        {NULL, "run", "'../x'", "run '../x'"},
        {NULL, "run", "''", "run ''"},
        {NULL, "run", "'a/b'", "run 'a/b'"},
        {NULL, "run", "'.hidden'", "run '.hidden'"},
        {NULL, "lease_ms", "10", "lease_ms 10"},
        {NULL, "lease_ms", "3600000", "lease_ms 3600000"},
        {NULL, "peers", "[]", "peers"},
        {NULL, "peers", "[{'name':'n9','address':'x'}]", "'n1' is not among the peers"},
        {NULL, "surprise", "1", "surprise"},
        {"node", "surprise", "1", "surprise"},
        {"node", "volumes", "[]", "volumes"},
        {"database", "port", "0", "port 0"},
        {"database", "port", "70000", "port 70000"},
        {"database", "data", "'relative'", "absolute"},
        {"database", "start", "[]", "start"},
        {"database", "start", "[1]", "start"},
        {"database", "ssl_root", "7", "ssl_root"},
        {"endpoint", "hosts", "['n9']", "'n9' is no peer"},
        {"power", "off", "'shell command'", "off"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OWNED_JSON json_t *params = parse(whole);
        OWNED_JSON json_t *wrapper = NULL;
        char text[128];
        struct error err = {0};
        json_t *object =
            cases[i].object == NULL ? params : json_object_get(params, cases[i].object);
        snprintf(text, sizeof text, "{'x':%s}", cases[i].value);
        wrapper = parse(text);
        json_object_set(object, cases[i].member, json_object_get(wrapper, "x"));
        ck_assert_msg(session_new(folder, params, &session, &err) == STATUS_INVALID, "%s %s",
                      cases[i].member, cases[i].value);
        ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s %s: %s", cases[i].member,
                      cases[i].value, err.message);
    }
}
END_TEST

START_TEST(another_protocol_is_told_what_to_do)
{
    OWNED_JSON json_t *params = parse(whole);
    struct error err = {0};

    json_object_set_new(params, "protocol", json_integer(2));
    ck_assert_int_eq(session_new(folder, params, &session, &err), STATUS_PROTOCOL);
    ck_assert_str_ne(err.hint, "");
}
END_TEST

START_TEST(a_node_without_a_database_serves_none)
{
    OWNED_JSON json_t *params = parse(whole);
    struct error err = {0};

    json_object_set_new(params, "database", json_null());
    json_object_set_new(params, "power", json_null());
    ck_assert_int_eq(session_new(folder, params, &session, &err), STATUS_OK);
    ck_assert(!session->has_database && !session->is_database);
    ck_assert_ptr_null(session->power_off);
}
END_TEST

TEST_MAIN("session", 20, setup, teardown, a_session_holds_what_was_sent, every_member_is_checked,
          bad_values_are_refused, another_protocol_is_told_what_to_do,
          a_node_without_a_database_serves_none)

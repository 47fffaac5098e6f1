/* SPDX-License-Identifier: MIT */
#include "tests/support/pki.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/process.h"

enum { DAYS = 10 };

static char folder[32];

static void issue(const char *of, const char *name, enum tls_role role, int64_t days)
{
    struct error err = {0};

    ck_assert_msg(pki_issue(of, name, role, days, &err) == STATUS_OK, "%s", err.message);
}

static void fill(const char *of)
{
    struct error err = {0};

    ck_assert_msg(pki_init(of, DAYS, &err) == STATUS_OK, "%s", err.message);
    issue(of, "n1", TLS_AGENT, DAYS);
    issue(of, "control", TLS_ORCHESTRATOR, DAYS);
    issue(of, "late", TLS_ORCHESTRATOR, -1);
}

void test_pki_new(void)
{
    strcpy(folder, "/tmp/ordeal-pki-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    fill(folder);
    fill(test_pki_path("foreign"));
}

void test_pki_remove(void)
{
    const char *argv[] = {"rm", "-rf", folder, NULL};
    struct error err = {0};
    enum status status =
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err);

    ck_assert_msg(status == STATUS_OK, "%s", err.message);
}

const char *test_pki_folder(void)
{
    return folder;
}

const char *test_pki_path(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

SSL_CTX *test_pki_context(enum tls_role role, const char *ca, const char *name)
{
    char certificate[80], key[80];
    struct error err = {0};
    SSL_CTX *context = NULL;

    snprintf(certificate, sizeof certificate, "%s.crt", name);
    snprintf(key, sizeof key, "%s.key", name);
    const struct tls_files files = {.ca = test_pki_path(ca),
                                    .certificate = test_pki_path(certificate),
                                    .key = test_pki_path(key)};
    ck_assert_msg(tls_context(role, &files, &context, &err) == STATUS_OK, "%s", err.message);
    return context;
}

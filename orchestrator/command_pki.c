/* SPDX-License-Identifier: MIT */
/* `ordeal pki init|issue|show`: the deployment's own CA and its certificates. */
#include <stdio.h>
#include <string.h>

#include "lib/owned.h"
#include "lib/tls.h"
#include "lib/units.h"
#include "orchestrator/command.h"

enum { CA_DAYS = 3650, LEAF_DAYS = 825, DAYS_MAX = 36500, TEXT_MAX = 16 * 1024 };

static enum status read_days(const struct invocation *invocation, int64_t fallback,
                             int64_t *ret_days, struct error *err)
{
    const char *text = invocation_option(invocation, "days");

    if (text == NULL) {
        *ret_days = fallback;
        return STATUS_OK;
    }
    enum status status = units_integer(text, ret_days, err);
    if (status == STATUS_OK && (*ret_days < 1 || *ret_days > DAYS_MAX))
        status = error_set(err, STATUS_USAGE, "--days %s is not in 1 to %d", text, DAYS_MAX);
    return status == STATUS_OK ? STATUS_OK : error_context(err, "--days");
}

static int init(const struct invocation *invocation)
{
    const char *folder = invocation_argument(invocation, 0);
    struct error err;
    int64_t days = 0;
    enum status status = read_days(invocation, CA_DAYS, &days, &err);

    if (status == STATUS_OK)
        status = pki_init(folder, days, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    printf("%s/ca.crt\n%s/ca.key\n", folder, folder);
    return EXIT_PASS;
}

static enum status read_role(const struct invocation *invocation, enum tls_role *ret_role,
                             struct error *err)
{
    const char *text = invocation_option(invocation, "role");

    if (text != NULL && strcmp(text, "agent") == 0)
        *ret_role = TLS_AGENT;
    else if (text != NULL && strcmp(text, "orchestrator") == 0)
        *ret_role = TLS_ORCHESTRATOR;
    else {
        error_set(err, STATUS_USAGE, "--role %s is neither agent nor orchestrator",
                  text != NULL ? text : "(missing)");
        error_hint(err, "Nodes get --role agent, the host that runs 'ordeal run' gets --role "
                        "orchestrator.");
        return STATUS_USAGE;
    }
    return STATUS_OK;
}

static int issue(const struct invocation *invocation)
{
    const char *folder = invocation_argument(invocation, 0);
    const char *name = invocation_argument(invocation, 1);
    enum tls_role role = TLS_AGENT;
    struct error err;
    int64_t days = 0;
    enum status status = read_role(invocation, &role, &err);

    if (status == STATUS_OK)
        status = read_days(invocation, LEAF_DAYS, &days, &err);
    if (status == STATUS_OK)
        status = pki_issue(folder, name, role, days, &err);
    if (status != STATUS_OK)
        return command_fail(&err);
    printf("%s/%s.crt\n%s/%s.key\n", folder, name, folder, name);
    return EXIT_PASS;
}

static int show(const struct invocation *invocation)
{
    OWNED_BUFFER struct buffer text = BUFFER(TEXT_MAX);
    struct error err;

    if (pki_show(invocation_argument(invocation, 0), &text, &err) != STATUS_OK)
        return command_fail(&err);
    fputs(buffer_text(&text), stdout);
    return EXIT_PASS;
}

static const struct command_option init_options[] = {
    {"days", 0, "DAYS", "how long the CA is valid (default 3650)"},
    {.name = NULL},
};

static const struct command_option issue_options[] = {
    {"role", 0, "ROLE", "agent (of the node called NAME) or orchestrator"},
    {"days", 0, "DAYS", "how long the certificate is valid (default 825)"},
    {.name = NULL},
};

static const struct command_option no_options[] = {{.name = NULL}};

const struct command command_pki_init = {
    .name = "pki init",
    .arguments = "DIR",
    .minimum = 1,
    .maximum = 1,
    .summary = "make the CA of a deployment",
    .text = "Creates the folder DIR (mode 0700) with ca.crt and ca.key. Refused when there is a CA "
            "already, since a new one makes every certificate of the old one worthless.",
    .options = init_options,
    .run = init,
};

const struct command command_pki_issue = {
    .name = "pki issue",
    .arguments = "DIR NAME",
    .minimum = 2,
    .maximum = 2,
    .summary = "issue the certificate of a node or of the orchestrator",
    .text = "Writes DIR/NAME.crt and DIR/NAME.key (mode 0600), replacing older ones. An agent's "
            "NAME is the name of its node in the topology. Copy ca.crt and the two files to that "
            "host; ca.key stays where it is.",
    .options = issue_options,
    .run = issue,
};

const struct command command_pki_show = {
    .name = "pki show",
    .arguments = "FILE",
    .minimum = 1,
    .maximum = 1,
    .summary = "show a certificate: subject, role, dates, fingerprint",
    .options = no_options,
    .run = show,
};

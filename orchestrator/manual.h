/* SPDX-License-Identifier: MIT */
/*
 * Help, manual page and shell completion, all from the command table.
 */
#ifndef ORDEAL_ORCHESTRATOR_MANUAL_H
#define ORDEAL_ORCHESTRATOR_MANUAL_H

#include "lib/buffer.h"
#include "lib/version.h"
#include "orchestrator/command.h"

void manual_overview(const struct command *const *commands, struct buffer *text);
void manual_command(const struct command *command, struct buffer *text);
void manual_page(const struct command *const *commands, struct buffer *text); /* roff, section 1 */
void manual_completion(const struct command *const *commands, struct buffer *text); /* bash */

#endif

/* SPDX-License-Identifier: MIT */
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "tests/support/suite.h"

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

START_TEST(captures_output_and_input)
{
    OWNED_RESULT struct process_result result = {0};
    struct error err;
    struct process_spec spec = {.argv = WORDS("cat"), .input = "hello\n", .timeout_ms = 5000};

    ck_assert_int_eq(process_run(&spec, &result, &err), STATUS_OK);
    ck_assert_str_eq(buffer_text(&result.output), "hello\n");
    ck_assert_int_eq(result.exit_code, 0);
}
END_TEST

START_TEST(failure_names_program_code_and_last_line)
{
    struct error err;
    struct process_spec spec = {.argv = WORDS("ls", "/no/such/folder"), .timeout_ms = 5000};

    ck_assert_int_eq(process_run(&spec, NULL, &err), STATUS_FAILED);
    ck_assert_ptr_nonnull(strstr(err.message, "ls exited with 2"));
    ck_assert_ptr_nonnull(strstr(err.message, "/no/such/folder"));
}
END_TEST

START_TEST(missing_program_is_named_with_a_remedy)
{
    struct error err;
    struct process_spec spec = {.argv = WORDS("no-such-program-of-ordeal"), .timeout_ms = 1000};

    ck_assert_int_eq(process_run(&spec, NULL, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.message, "no-such-program-of-ordeal"));
    ck_assert_ptr_nonnull(strstr(err.hint, "PATH"));
}
END_TEST

START_TEST(deadline_ends_it_and_its_children)
{
    OWNED_RESULT struct process_result result = {0};
    struct error err;
    struct process_spec spec = {
        .argv = WORDS("sh", "-c", "trap '' TERM; echo $$; sleep 60 & wait; wait"),
        .timeout_ms = 100};
    int64_t before = clock_boot_ns();

    ck_assert_int_eq(process_run(&spec, &result, &err), STATUS_TIMEOUT);
    ck_assert(result.timed_out);
    ck_assert_int_lt(clock_boot_ns() - before, 5 * NS_PER_SECOND);
    ck_assert_int_gt(strtol(buffer_text(&result.output), NULL, 10), 1);
}
END_TEST

START_TEST(environment_is_added_and_replaced)
{
    OWNED_RESULT struct process_result result = {0};
    struct error err;
    struct process_spec spec = {.argv = WORDS("sh", "-c", "echo $HOME:$ORDEAL_TEST"),
                                .env = WORDS("HOME=/nowhere", "ORDEAL_TEST=x"),
                                .timeout_ms = 5000};

    ck_assert_int_eq(process_run(&spec, &result, &err), STATUS_OK);
    ck_assert_str_eq(buffer_text(&result.output), "/nowhere:x\n");
}
END_TEST

START_TEST(another_user_gets_its_own_home)
{
    OWNED_RESULT struct process_result result = {0};
    struct error err;
    const struct passwd *nobody = getpwnam("nobody");
    char expected[512];
    struct process_spec spec = {.argv = WORDS("sh", "-c", "echo $HOME:$USER:$(id -un)"),
                                .user = "nobody",
                                .timeout_ms = 5000};

    if (geteuid() != 0 || nobody == NULL)
        return;
    ck_assert_int_eq(process_run(&spec, &result, &err), STATUS_OK);
    snprintf(expected, sizeof expected, "%s:nobody:nobody\n", nobody->pw_dir);
    ck_assert_str_eq(buffer_text(&result.output), expected);
}
END_TEST

START_TEST(unknown_user_is_an_error)
{
    struct error err;
    struct process_spec spec = {.argv = WORDS("true"), .user = "no-such-user", .timeout_ms = 1000};

    ck_assert_int_eq(process_run(&spec, NULL, &err), STATUS_NOT_FOUND);
}
END_TEST

static int sleep_long(void *argument)
{
    (void) argument;
    sleep(60);
    return 0;
}

static struct process_id fork_sleeper(struct process *process)
{
    struct process_id id;
    struct error err;

    ck_assert_int_eq(process_fork(sleep_long, NULL, process, &err), STATUS_OK);
    ck_assert_int_eq(process_identify(process->pid, &id, &err), STATUS_OK);
    return id;
}

START_TEST(a_zombie_counts_as_gone)
{
    struct error err;
    struct process process;
    struct process_id id = fork_sleeper(&process);
    int wait_status;

    ck_assert(process_alive(id));
    ck_assert_int_eq(process_signal(id, SIGKILL, &err), STATUS_OK);
    ck_assert_int_eq(process_wait_gone(id, deadline_in_ms(2000), &err), STATUS_OK);
    ck_assert(!process_alive(id)); /* not reaped yet */
    ck_assert_int_eq(process_signal(id, SIGTERM, &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(process_reap(&process, deadline_in_ms(1000), &wait_status, &err), STATUS_OK);
    ck_assert_int_eq(WTERMSIG(wait_status), SIGKILL);
}
END_TEST

START_TEST(another_start_time_is_another_process)
{
    struct error err;
    struct process process;
    struct process_id id = fork_sleeper(&process);

    id.start_ticks++;
    ck_assert_int_eq(process_signal(id, SIGKILL, &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(kill(process.pid, 0), 0);
    process_kill(&process);
}
END_TEST

START_TEST(init_self_and_ancestors_are_refused)
{
    struct error err;
    struct process_id id;
    pid_t pids[] = {1, getpid(), getppid()};

    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) {
        ck_assert_int_eq(process_identify(pids[i], &id, &err), STATUS_OK);
        ck_assert_int_eq(process_signal(id, SIGCONT, &err), STATUS_REFUSED);
    }
}
END_TEST

START_TEST(reap_says_when_it_still_runs)
{
    struct error err;
    struct process process;

    fork_sleeper(&process);
    ck_assert_int_eq(process_reap(&process, deadline_in_ms(20), NULL, &err), STATUS_TIMEOUT);
    process_kill(&process);
}
END_TEST

TEST_MAIN("process", 20, NULL, NULL, captures_output_and_input,
          failure_names_program_code_and_last_line, missing_program_is_named_with_a_remedy,
          deadline_ends_it_and_its_children, environment_is_added_and_replaced,
          another_user_gets_its_own_home, unknown_user_is_an_error, a_zombie_counts_as_gone,
          another_start_time_is_another_process, init_self_and_ancestors_are_refused,
          reap_says_when_it_still_runs)

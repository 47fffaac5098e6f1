# SPDX-License-Identifier: MIT
#
# make            build/ordeal, build/ordeald, build/ordeal-guardian
# make demo       install what is missing, build, lab up, profile smoke, show the report
# make check      install what is missing, build, run all tests  (SAN=address,undefined for sanitizers)
# make lint       format, clang-tidy, cppcheck, size gate, dependency direction
# make bench      timings, apart from the tests
# make mutate     each mutant of the checks must fail some test
# make soak N=20  healthy clusters over and over, apart from the tests
# make deps       install the packages below
#
# A variant (SAN=..., the kill points of tests) has a build folder of its own.

# Everything that comes from outside, in one place: packages of Debian 12 (bookworm), by name.
DEBIAN_RELEASE := bookworm
PACKAGES_RUN := postgresql-15 libpq5 libjansson4 libyaml-0-2 openssl iproute2 nftables xfsprogs \
	util-linux procps kmod
PACKAGES_BUILD := build-essential pkg-config libpq-dev libjansson-dev libyaml-dev libssl-dev check
PACKAGES_LINT := clang-format clang-tidy cppcheck universal-ctags

# Programs are built on all processors, tests run one after the other.
JOBS := -j$(shell nproc)

SAN ?=
comma := ,
BUILD := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
MODULES := libpq jansson yaml-0.1 openssl

CC ?= gcc
OPTIMISE := $(if $(SAN),-O1,-O2)
# the sanitizers' own checks for NULL make these see paths that are not there
NOISE := -Wno-format-truncation -Wno-format-overflow -Wno-maybe-uninitialized
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wformat=2 -Wundef -Wvla -Wimplicit-fallthrough \
	-Wdouble-promotion $(if $(SAN),$(NOISE),-Wnull-dereference)
HARDENING := -fstack-protector-strong -fPIE $(if $(SAN),,-D_FORTIFY_SOURCE=2)
CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS += -std=gnu11 -g $(OPTIMISE) $(WARNINGS) $(HARDENING) $(if $(CI),-Werror) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
LDFLAGS += -pie -Wl,-z,relro,-z,now $(if $(SAN),-fsanitize=$(SAN))
MODULE_CFLAGS = $(shell pkg-config --cflags $(MODULES) 2>/dev/null)
MODULE_LIBS = $(shell pkg-config --libs $(MODULES))
CHECK_LIBS = $(shell pkg-config --libs check)

MAINS := orchestrator/ordeal.c agents/ordeald.c
GUARDIAN_SOURCES := $(wildcard agents/guardian/*.c) lib/error.c lib/clock.c lib/crc32c.c lib/kill_point.c
SOURCES := $(filter-out $(MAINS),$(wildcard lib/*.c faults/*.c agents/*.c agents/guardian/journal.c agents/guardian/member.c agents/load/*.c agents/sampler/*.c \
	topologies/*.c topologies/lab/*.c topologies/ha/*.c orchestrator/*.c orchestrator/checks/*.c \
	orchestrator/reports/*.c))
OBJECTS := $(SOURCES:%.c=$(BUILD)/%.o)
ARCHIVE := $(BUILD)/libordeal.a
PROGRAMS := $(BUILD)/ordeal $(BUILD)/ordeald $(BUILD)/ordeal-guardian
UNIT_SOURCES := $(wildcard tests/unit/test_*.c tests/contract/test_*.c tests/calibration/test_*.c)
UNIT_TESTS := $(UNIT_SOURCES:%.c=$(BUILD)/%)
TEST_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))
TEST_TOOLS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/support/tools/*.c))

# The same programs with the points of lib/kill_point.h, for tests: only what has such points is built again.
KILL := $(BUILD)/variants/kill
KILL_SOURCES := lib/kill_point.c $(shell grep -l '^\#include "lib/kill_point.h"' $(SOURCES) $(GUARDIAN_SOURCES) | sort -u)
KILL_PROGRAMS := $(addprefix $(KILL)/,ordeal ordeald ordeal-guardian)
kill_objects = $(foreach source,$(1),$(if $(filter $(source),$(KILL_SOURCES)),$(KILL),$(BUILD))/$(source:.c=.o))

.PHONY: all deps demo check test-programs bench-programs lint bench soak mutate clean
.DELETE_ON_ERROR:
.PRECIOUS: $(BUILD)/%.o $(KILL)/%.o

all: $(PROGRAMS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(MODULE_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(ARCHIVE): $(OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/ordeal: $(BUILD)/orchestrator/ordeal.o $(ARCHIVE)
	$(CC) $(LDFLAGS) $^ $(MODULE_LIBS) -o $@

$(BUILD)/ordeald: $(BUILD)/agents/ordeald.o $(ARCHIVE)
	$(CC) $(LDFLAGS) $^ $(MODULE_LIBS) -o $@

$(BUILD)/ordeal-guardian: $(GUARDIAN_SOURCES:%.c=$(BUILD)/%.o)
	$(CC) $(LDFLAGS) $^ -o $@

$(KILL)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -DORDEAL_KILL_POINTS $(MODULE_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(KILL)/libordeal.a: $(call kill_objects,$(SOURCES))
	@rm -f $@
	$(AR) rcs $@ $^

$(KILL)/ordeald: $(BUILD)/agents/ordeald.o $(KILL)/libordeal.a
	$(CC) $(LDFLAGS) $^ $(MODULE_LIBS) -o $@

$(KILL)/ordeal-guardian: $(call kill_objects,$(GUARDIAN_SOURCES))
	$(CC) $(LDFLAGS) $^ -o $@

# itself without points, beside the agent that its lab starts
$(KILL)/ordeal: $(BUILD)/ordeal
	@mkdir -p $(@D)
	cp $< $@

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_HELPERS) $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(CHECK_LIBS) $(MODULE_LIBS) -o $@

$(BUILD)/tests/kill/kill_table: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/kill/*.c)) $(ARCHIVE)
	$(CC) $(LDFLAGS) $^ $(MODULE_LIBS) -o $@

# Tools that test scripts call; no suite of Check is linked.
$(TEST_TOOLS): $(BUILD)/tests/support/tools/%: $(BUILD)/tests/support/tools/%.o $(ARCHIVE)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $^ $(MODULE_LIBS) -o $@

bench-programs: $(BENCHES)

test-programs: $(UNIT_TESTS) $(TEST_TOOLS) $(KILL_PROGRAMS) $(BUILD)/tests/kill/kill_table

deps:
	@PACKAGES="$(PACKAGES_RUN) $(PACKAGES_BUILD)" tests/install-packages

demo: deps
	@$(MAKE) $(JOBS) --no-print-directory all
	@tests/demo $(BUILD)

check: deps
	@$(MAKE) $(JOBS) --no-print-directory all test-programs
	@tests/run $(BUILD)

lint:
	@PACKAGES="$(PACKAGES_LINT) $(PACKAGES_BUILD)" tests/install-packages
	@tests/lint/run

bench: deps
	@$(MAKE) $(JOBS) --no-print-directory all test-programs bench-programs
	@tests/bench/run $(BUILD)

soak: deps
	@$(MAKE) $(JOBS) --no-print-directory all
	@tests/soak/run $(BUILD) $(N)

# a mutant is compiled without the optimiser, which takes longer than its tests
mutate: deps
	@$(MAKE) --no-print-directory $(ARCHIVE) test-programs
	@COMPILE="$(CC) $(CPPFLAGS) $(MODULE_CFLAGS) $(CFLAGS) -O0 -U_FORTIFY_SOURCE" LINK_FLAGS="$(LDFLAGS)" \
		LINK_LIBS="$(CHECK_LIBS) $(MODULE_LIBS)" tests/mutation/run $(BUILD)

clean:
	rm -rf build build-*

-include $(OBJECTS:.o=.d) $(UNIT_TESTS:=.d) $(BENCHES:=.d) $(TEST_TOOLS:=.d) $(BUILD)/orchestrator/ordeal.d $(BUILD)/agents/ordeald.d \
	$(wildcard $(BUILD)/agents/guardian/*.d $(BUILD)/tests/support/*.d $(BUILD)/tests/kill/*.d) $(KILL_SOURCES:%.c=$(KILL)/%.d)

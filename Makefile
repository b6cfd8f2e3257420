# jobq: `make help` lists the targets.
#
# A PGXS makefile.  demo, test and help work on a machine without pg_config,
# because they install missing packages first.  All targets that need a server's
# headers are behind the ifeq below.

EXTENSION = jobq
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" jobq.control)
MODULE_big = jobq
PG_CONFIG = pg_config
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))

.DEFAULT_GOAL := all
.PHONY: help deps demo demo-keep test check lint docs sanitize sanitize-web valgrind-web fuzz bench bench-full bench-smoke check-assert check-cgroup valgrind format vendor-check release-archive distclean

help:
	@sed -n 's/^#: //p' $(firstword $(MAKEFILE_LIST))

#: make                 build extension and programs (PG_CONFIG=... chooses a server)
#: make install         install them into that server
#: make installcheck    pg_regress and isolation specs against a running server with jobq preloaded
#: make demo            install missing packages, build, and run real jobs in a throwaway cluster
#: make demo-keep       the same, and leave the cluster running
#: make demo-NAME       another folder of examples/ (not web): pg_cron, workflows, ...
#: make check           the quick gate, five minutes: tests of changed folders (BASE=commit)
#: make lint            the language of the tree and of commits' subjects
#: make test            build with warnings as errors; every kind of test, private clusters
#: make test KIND=tap   one kind: house lint helper regress pgtap isolation tap clients web ...
#: make docs            make docs/reference and docs/api.md from the catalog, settings and routes
#: make sanitize        jobq-helper and its unit tests under ASan and UBSan
#: make sanitize-web    TAP tests and contract of jobq-web, with it under ASan and UBSan
#: make valgrind-web    the same under valgrind
#: make fuzz            the fuzzers of jobq-helper and of cron expressions, 90 s each (clang)
#: make bench           measure jobq and its peers: build/bench/report.html, some 10 minutes
#: make bench-full      the same three times, ten-minute runs, 10 M jobs: some 2.5 hours
#: make bench-smoke     a short check of the benchmark: one minute, jobq and the hand-written worker
#: make check-assert    make test on a server built with assertions
#: make check-cgroup    the tests of cgroups in a virtual machine that has their controllers
#: make valgrind        pg_regress and isolation specs with the server under valgrind
#: make format          pgindent over the C files (needs the headers of PostgreSQL 17 or newer)
#: make vendor-check    compare src/web/page/vendor with the npm packages (npm)
#: make release-archive make test/upgrade/jobq-VERSION.tar.xz of HEAD, for later releases
#: make deps            install the Debian packages of build and gate (FULL=1: of all tests)
#: make clean           remove built files

# PGXS has a check of its own, which only says that there is none.
ifneq ($(filter check,$(MAKECMDGOALS)),)
PGXS :=
check: deps
	@PG_CONFIG="$(PG_CONFIG)" test/check $(BASE)
endif

KIND = all
deps:
	@test/deps $(if $(FULL),--full) $(PG_CONFIG)
demo: deps
	@examples/demo/run --pg-config=$(PG_CONFIG)
demo-keep: deps
	@examples/demo/run --pg-config=$(PG_CONFIG) --keep
demo-workflows demo-ml-ingest demo-background-framework: FULL = 1
demo-%: deps
	@examples/$*/run --pg-config=$(PG_CONFIG)
test: FULL = $(filter all clients web examples,$(KIND))
test: deps
	@test/run --pg-config=$(PG_CONFIG) $(KIND)
lint: deps
	@test/run --pg-config=$(PG_CONFIG) lint
docs: deps
	@JOBQ_WRITE_DOCS=1 ONLY=reference test/run --pg-config=$(PG_CONFIG) readme; \
		rc=$$?; cp build/log/reference/*.md docs/reference/ && \
		{ [ ! -e build/log/api.md ] || cp build/log/api.md docs/; } && exit $$rc
sanitize: deps
	@test/run --pg-config=$(PG_CONFIG) --sanitize helper
sanitize-web valgrind-web: FULL = 1
sanitize-web valgrind-web: deps
	@ONLY="_web_ web.pl" test/run --pg-config=$(PG_CONFIG) --$(@:-web=) tap web
fuzz:
	@$(MAKE) --no-print-directory -C test/helper fuzz
bench: deps
	@PG_CONFIG="$(PG_CONFIG)" bench/run quick
bench-full: deps
	@PG_CONFIG="$(PG_CONFIG)" bench/run full
bench-smoke: deps
	@PG_CONFIG="$(PG_CONFIG)" bench/deps smoke
	@cd bench && python3 -m unittest
	@PG_CONFIG="$(PG_CONFIG)" bench/run smoke --out build/bench-smoke
check-assert: deps
	@test/run --pg-config="$$(test/assert-server)" all
check-cgroup: deps
	@$(MAKE) --no-print-directory -s WERROR=1 all
	@$(MAKE) --no-print-directory -s -C test/helper all
	@test/cgroup-vm --pg-config="$$(command -v $(PG_CONFIG))"
valgrind: deps
	@test/run --pg-config="$$(test/assert-server)" --valgrind regress isolation
format:
	@.ci/format
vendor-check:
	@.ci/vendor-check
release-archive:
	@test/upgrade/archive

ifeq ($(PGXS),)

all install uninstall installcheck:
	@echo "$(PG_CONFIG) names no server headers: 'make deps' installs them, or give PG_CONFIG=" >&2; exit 1
clean distclean:
	rm -rf build jobq.so jobq-helper jobq-web jobq-top jobq--*.sql src/*.o src/*/*.o

else

# The helper is a separate program; some of its files are linked into the
# extension, too.
include src/helper/sources.mk
include src/web/sources.mk
include src/top/sources.mk
HELPER_OBJS = $(patsubst %.c,build/%.o,$(HELPER_SRCS))
OBJS = $(patsubst %.c,%.o,$(wildcard src/*.c) $(filter-out src/helper/% src/web/% src/top/%,$(wildcard src/*/*.c)) $(HELPER_SHARED))
PROGRAM_HELPER = jobq-helper
# jobq-web is a program of its own that needs libmicrohttpd, libpq and zlib.
PROGRAM_WEB = jobq-web
WEB_OBJS = $(patsubst %.c,build/%.o,$(WEB_SRCS) $(WEB_SHARED)) build/src/web/page.o
WEB_LIBPQ = -isystem $(shell $(PG_CONFIG) --includedir)
WEB_HAS := $(shell $(CC) $(WEB_LIBPQ) -include microhttpd.h -include libpq-fe.h -include zlib.h -x c -E /dev/null >/dev/null 2>&1 && echo yes)
# jobq-top is one, too, with libpq alone.
PROGRAM_TOP = jobq-top
TOP_OBJS = $(patsubst %.c,build/%.o,$(TOP_SRCS) $(TOP_SHARED))
TOP_HAS := $(shell $(CC) $(WEB_LIBPQ) -include libpq-fe.h -x c -E /dev/null >/dev/null 2>&1 && echo yes)
# The update script from the release before this one.
UPGRADES = $(patsubst src/sql/upgrade/%.before.sql,jobq--%.sql,$(wildcard src/sql/upgrade/*.before.sql))
DATA_built = jobq--$(EXTVERSION).sql $(UPGRADES)
# Update scripts of released versions, unchanged.
DATA = $(wildcard src/sql/upgrade/jobq--*--*.sql)

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation

# Callbacks have the server's signatures and may leave arguments unused.
# -isystem: warnings are for jobq's code, not for the server's headers.
WARNINGS = -Wno-unused-parameter
ifdef WERROR
WARNINGS += -Wall -Wextra -Werror
endif
PG_CFLAGS = $(WARNINGS)
PG_CPPFLAGS = -Isrc -isystem $(shell $(PG_CONFIG) --includedir-server)
# No function is worth inlining into a query, so no bitcode and no clang.
override with_llvm = no

EXTRA_CLEAN = build $(PROGRAM_HELPER) $(PROGRAM_WEB) $(PROGRAM_TOP) jobq--*.sql jobq--*.part src/*.o src/*/*.o output_iso

include $(PGXS)

all: $(PROGRAM_HELPER)

# Rebuild all files for another server or other flags.
build/flags: FORCE
	@mkdir -p build
	@echo '$(VERSION) $(CC) $(CFLAGS) $(CPPFLAGS) $(HELPER_CFLAGS)' | cmp -s - $@ || \
		echo '$(VERSION) $(CC) $(CFLAGS) $(CPPFLAGS) $(HELPER_CFLAGS)' > $@
.PHONY: FORCE

$(OBJS): $(wildcard src/*.h src/*/*.h) build/flags

jobq--$(EXTVERSION).sql: $(sort $(wildcard src/sql/*.sql))
	cat $^ > $@

# The handwritten parts, and between them the functions, views and comments of
# the install script: src/sql/upgrade/README.md.
jobq--%.sql: src/sql/upgrade/00_head.sql src/sql/upgrade/%.before.sql jobq--$(EXTVERSION).sql \
		src/sql/upgrade/50_owner.sql src/sql/upgrade/%.after.sql src/sql/upgrade/99_foot.sql src/sql/upgrade/carry_over.awk
	old='$(word 1,$(subst --, ,$*))'; new='$(word 2,$(subst --, ,$*))'; \
	{ cat src/sql/upgrade/00_head.sql src/sql/upgrade/$*.before.sql && \
	  awk -f src/sql/upgrade/carry_over.awk jobq--$(EXTVERSION).sql && \
	  cat src/sql/upgrade/50_owner.sql src/sql/upgrade/$*.after.sql src/sql/upgrade/99_foot.sql; } > $@.part && \
	sed "s/@OLD@/$$old/g; s/@NEW@/$$new/g" $@.part > $@ && rm $@.part

HELPER_CFLAGS = -std=gnu99 -D_GNU_SOURCE
build/src/helper/%.o: src/helper/%.c $(wildcard src/helper/*.h) build/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(HELPER_CFLAGS) -Isrc/helper -c -o $@ $<

$(PROGRAM_HELPER): $(HELPER_OBJS)
	$(CC) $(CFLAGS) $(HELPER_CFLAGS) $(LDFLAGS) -o $@ $^

WEB_CFLAGS = -std=gnu99 -D_GNU_SOURCE -DJOBQ_WEB_VERSION='"$(EXTVERSION)"' -Isrc -Isrc/helper $(WEB_LIBPQ)
build/src/web/%.o: src/web/%.c $(wildcard src/web/*.h src/helper/*.h) build/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(WEB_CFLAGS) -c -o $@ $<

build/src/web/page.o: src/web/embed src/web/sources.mk $(addprefix src/web/page/,$(WEB_PAGE)) $(wildcard src/web/*.h) build/flags
	@mkdir -p $(@D)
	src/web/embed src/web/page $(WEB_PAGE) > build/src/web/page.c.part && mv build/src/web/page.c.part build/src/web/page.c
	$(CC) $(CFLAGS) $(WEB_CFLAGS) -Isrc/web -c -o $@ build/src/web/page.c

$(PROGRAM_WEB): $(WEB_OBJS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -L$(shell $(PG_CONFIG) --libdir) -lmicrohttpd -lpq -lz

.PHONY: web install-web uninstall-web
ifeq ($(WEB_HAS),yes)
web: $(PROGRAM_WEB)
install-web: $(PROGRAM_WEB) installdirs
	$(MKDIR_P) '$(DESTDIR)$(bindir)' '$(DESTDIR)$(mandir)/man8'
	$(INSTALL_PROGRAM) $(PROGRAM_WEB) '$(DESTDIR)$(bindir)/$(PROGRAM_WEB)'
	$(INSTALL_DATA) src/web/jobq-web.8 '$(DESTDIR)$(mandir)/man8/jobq-web.8'
else
web install-web:
	@echo "jobq-web is left out: no headers of libmicrohttpd, libpq and zlib (Debian: libmicrohttpd-dev, libpq-dev, zlib1g-dev)"
endif
uninstall-web:
	rm -f '$(DESTDIR)$(bindir)/$(PROGRAM_WEB)' '$(DESTDIR)$(mandir)/man8/jobq-web.8'
all: web

TOP_CFLAGS = -std=gnu99 -D_GNU_SOURCE -DJOBQ_TOP_VERSION='"$(EXTVERSION)"' -Isrc $(WEB_LIBPQ)
build/src/top/%.o: src/top/%.c $(wildcard src/top/*.h src/helper/*.h) build/flags
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(TOP_CFLAGS) -c -o $@ $<

$(PROGRAM_TOP): $(TOP_OBJS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -L$(shell $(PG_CONFIG) --libdir) -lpq

.PHONY: top install-top uninstall-top
ifeq ($(TOP_HAS),yes)
top: $(PROGRAM_TOP)
install-top: $(PROGRAM_TOP) installdirs
	$(MKDIR_P) '$(DESTDIR)$(bindir)' '$(DESTDIR)$(mandir)/man1'
	$(INSTALL_PROGRAM) $(PROGRAM_TOP) '$(DESTDIR)$(bindir)/$(PROGRAM_TOP)'
	$(INSTALL_DATA) src/top/jobq-top.1 '$(DESTDIR)$(mandir)/man1/jobq-top.1'
else
top install-top:
	@echo "jobq-top is left out: no headers of libpq (Debian: libpq-dev)"
endif
uninstall-top:
	rm -f '$(DESTDIR)$(bindir)/$(PROGRAM_TOP)' '$(DESTDIR)$(mandir)/man1/jobq-top.1'
all: top

install: install-helper install-web install-top
uninstall: uninstall-helper uninstall-web uninstall-top
.PHONY: install-helper uninstall-helper
install-helper: $(PROGRAM_HELPER) installdirs
	$(INSTALL_PROGRAM) $(PROGRAM_HELPER) '$(DESTDIR)$(pkglibdir)/$(PROGRAM_HELPER)'
uninstall-helper:
	rm -f '$(DESTDIR)$(pkglibdir)/$(PROGRAM_HELPER)'

endif

# Targets:  all (default)  install  demo  demo-stop  test  check-all  lint  analyze  fuzz  mutants  format  clean
# Knobs:    CONFIG=release|debug|asan|tsan|fuzz    CUDA=0|1    CC=gcc|clang    V=1 shows commands
#
# One Makefile, no recursion. Objects of each configuration live apart in build/$(CONFIG), so that
# switching never needs a clean. Plain `make` installs nothing; `make demo` and `make test` ask
# docker/install for what is missing.

# Waiting threads of tests and benches do not spin (trainer/main.c says why).
export GOMP_SPINCOUNT ?= 1000

CONFIG ?= release
CUDA   ?= 0
ifeq ($(origin CC),default)
  # Ubuntu 22.04 has gcc 12 beside its gcc 11.
  CC := $(if $(filter 9 10 11,$(shell gcc -dumpversion 2>/dev/null)),gcc-12,gcc)
endif
CLANG  := $(findstring clang,$(CC))
B      := build/$(CONFIG)$(if $(filter 1,$(CUDA)),-cuda)$(if $(CLANG),-clang)
O      := $B/obj
Q      := $(if $(V),,@)
WERROR ?= -Werror

WARN := -Wall -Wextra -Wpedantic $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
        -Wwrite-strings -Wcast-qual -Wundef -Wformat=2 -Wswitch-enum -Wpointer-arith \
        -Wdouble-promotion -Wconversion -Wsign-conversion -Wnull-dereference -Wunused-macros \
        -Wold-style-definition -Wimplicit-fallthrough
ifeq ($(CLANG),)
  WARN += -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wcast-align=strict
endif

OPT.release := -O3 -g -fno-math-errno -fno-trapping-math
OPT.debug   := -O0 -g3
OPT.asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
OPT.tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
OPT.fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
               -fno-sanitize-recover=all -Wno-pass-failed

# OpenMP threads with gcc; clang and tsan keep only `omp simd` (clang's runtime is another library
# than the one oneDNN brings, and tsan does not understand either).
OMP := $(if $(CLANG)$(filter tsan,$(CONFIG)),-fopenmp-simd,-fopenmp)

CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP
CFLAGS   += -std=c17 $(WARN) $(OPT.$(CONFIG))
LDLIBS   := -Wl,--as-needed -lmicrohttpd -lcurl -lsqlite3 -lpcre2-8 -lutf8proc -lnettle -ljansson -lz -lzstd -ldnnl -lm -pthread

# Layers, lowest first. Vector kernels (kernels/cpu/vec) are built once per instruction set, with
# that set's name as a suffix of every symbol; the double build has only the first two.
KERNELS := $(wildcard kernels/*.c kernels/cpu/*.c)
VECTOR  := $(wildcard kernels/cpu/vec/*.c)
TRAINER := $(filter-out trainer/main.c,$(wildcard trainer/*.c trainer/*/*.c))
SERVER  := $(filter-out server/main.c,$(wildcard server/*.c))
CLI     := $(filter-out server/cli/main.c,$(wildcard server/cli/*.c))
TESTS   := $(wildcard tests/test_*.c)
TESTS64 := $(wildcard tests/f64_*.c)
# Tests of numbers run in both builds; that of the choice of instruction set needs the library.
BOTH    := $(filter-out tests/test_kernels_cpu.c,$(wildcard tests/test_kernels_*.c))
BENCHES := $(wildcard tests/bench_*.c)

ISA.v2     := -march=x86-64-v2
ISA.v3     := -march=x86-64-v3 -ffp-contract=fast
ISA.v4     := -march=x86-64-v4 -mprefer-vector-width=512 -ffp-contract=fast
ISA.v4bf16 := $(ISA.v4) -mavx512bf16
ISAS       := v2 v3 v4 v4bf16
ISAS64     := v2 v3

objects   = $(patsubst %,$O/%.o,$1)
objects64 = $(patsubst %,$O/f64/%.o,$1)
vectors   = $(foreach i,$(ISAS),$(patsubst %,$O/isa/$i/%.o,$(VECTOR)))
vectors64 = $(foreach i,$(ISAS64),$(patsubst %,$O/f64/isa/$i/%.o,$(VECTOR)))

PROGRAMS := $(if $(wildcard trainer/main.c),$B/hone-train) $(if $(wildcard server/main.c),$B/honed) \
            $(if $(wildcard server/cli/main.c),$B/hone)

PLOTTER := node_modules/uplot/dist

.PHONY: all install demo demo-stop test test-layouts check-all lint analyze fuzz mutants format clean programs tests ctests
.DELETE_ON_ERROR:
.SECONDARY:
all: $(PROGRAMS) $(if $(wildcard $(PLOTTER)),web/vendor/uPlot.esm.js)

$O/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(OMP) -c $< -o $@

$O/f64/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "CC64  $<"
	$(Q)$(CC) $(CPPFLAGS) -DHONE_DOUBLE $(CFLAGS) $(OMP) -c $< -o $@

define isa_rules
$O/isa/$1/%.c.o: %.c Makefile
	@mkdir -p $$(@D)
	@echo "CC    $$< ($1)"
	$$(Q)$$(CC) $$(CPPFLAGS) -DISA=$1 $$(CFLAGS) $$(ISA.$1) $$(OMP) -c $$< -o $$@
$O/f64/isa/$1/%.c.o: %.c Makefile
	@mkdir -p $$(@D)
	@echo "CC64  $$< ($1)"
	$$(Q)$$(CC) $$(CPPFLAGS) -DHONE_DOUBLE -DISA=$1 $$(CFLAGS) $$(ISA.$1) $$(OMP) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rules,$i)))

$O/kernels.a:     $(call objects,$(KERNELS)) $(vectors)
$O/trainer.a:     $(call objects,$(TRAINER))
$O/server.a:      $(call objects,$(SERVER))
$O/cli.a:         $(call objects,$(CLI))
$O/f64/kernels.a: $(call objects64,$(KERNELS)) $(vectors64)
$O/f64/trainer.a: $(call objects64,$(TRAINER))
$O/%.a:
	@mkdir -p $(@D)
	@echo "AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

link = @mkdir -p $(@D); echo "LINK  $@"; $(if $(V),set -x;) $(CC) $(CFLAGS) $(OMP) $(filter %.o %.a,$^) $1 -o $@

$B/hone-train: $O/trainer/main.c.o $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))
# honed plans with the trainer's own code but links no kernel library.
$B/honed: $O/server/main.c.o $O/server.a $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))
$B/hone: $O/server/cli/main.c.o $O/cli.a $O/trainer.a
	$(call link,-lcurl -ljansson -lnettle -lm -pthread)

# uPlot draws the page's charts. docker/install gets it; without it the page draws plain lines.
web/vendor/uPlot.esm.js: $(PLOTTER)/uPlot.esm.js
	@mkdir -p $(@D)
	$(Q)cp $(PLOTTER)/uPlot.esm.js $(PLOTTER)/uPlot.min.css $(PLOTTER)/../LICENSE $(@D)/

# Fuzz targets: with CONFIG=fuzz CC=clang they run for ever, else over the files that they are given.
$B/tests/fuzz_%: $O/tests/fuzz_%.c.o $(if $(filter fuzz,$(CONFIG)),,$O/tests/fuzz_main.c.o) \
                 $O/server.a $O/trainer.a $O/kernels.a
	$(call link,$(if $(filter fuzz,$(CONFIG)),-fsanitize=fuzzer) $(LDLIBS))
COUNTED := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=mmap
# Tests: one program per file, so that a crash in one hides nothing in another.
$B/tests/test_%: $O/tests/test_%.c.o $O/server.a $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))
# Calls of Hone's own objects go through the test's counters.
$B/tests/test_allocation: $O/tests/test_allocation.c.o $O/trainer.a $O/kernels.a
	$(call link,$(COUNTED) $(LDLIBS))
$B/tests/test_cli_%: $O/tests/test_cli_%.c.o $O/cli.a $O/trainer.a
	$(call link,-lcurl -ljansson -lnettle -lm -pthread)
$B/tests/bench_%: $O/tests/bench_%.c.o $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))
$B/tests/f64_%: $O/f64/tests/f64_%.c.o $O/f64/trainer.a $O/f64/kernels.a
	$(call link,$(LDLIBS))
# The kernels' own tests link nothing above them.
$(patsubst tests/%.c,$B/tests/%,$(filter tests/test_kernels_%,$(TESTS))): \
$B/tests/%: $O/tests/%.c.o $O/kernels.a
	$(call link,-ldnnl -lm -pthread)
$(patsubst tests/test_%.c,$B/tests/f64_%,$(BOTH)): \
$B/tests/f64_%: $O/f64/tests/test_%.c.o $O/f64/kernels.a
	$(call link,-lm -pthread)
$B/tests/bench_kernels: $O/tests/bench_kernels.c.o $O/kernels.a
	$(call link,-ldnnl -lm -pthread)
$B/tests/bench_queue: $O/tests/bench_queue.c.o $O/server.a $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))
# A library in place of NVIDIA's, for the test of what is read from it.
$B/tests/fake_nvml.so: tests/fake_nvml.c Makefile
	@mkdir -p $(@D)
	@echo "LINK  $@"
	$(Q)$(CC) $(CPPFLAGS) -MF $O/fake_nvml.d $(CFLAGS) -fPIC -shared $< -ljansson -o $@
$B/tests/test_nvml: | $B/tests/fake_nvml.so
$B/tests/test_supervise: | $B/tests/fake_trainer
$B/tests/fake_trainer: $O/tests/fake_trainer.c.o $O/trainer.a $O/kernels.a
	$(call link,$(LDLIBS))

CTESTS := $(patsubst tests/%.c,$B/tests/%,$(TESTS) $(TESTS64)) \
          $(patsubst tests/test_%.c,$B/tests/f64_%,$(BOTH))
tests: $(CTESTS)
ctests: tests
	$(Q)prove --timer $(CTESTS)


PREFIX ?= /usr/local
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/hone/machines
	install $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	cp -R web $(DESTDIR)$(PREFIX)/share/hone/
	cp server/machines/*.json $(DESTDIR)$(PREFIX)/share/hone/machines/

# These two ask docker/install first; make is started again, because only then is the compiler there.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
demo:
	$(Q)docker/install build demo web
	$(Q)$(MAKE) --no-print-directory $(JOBS) all
	$(Q)docker/demo run $B
demo-stop:
	$(Q)docker/demo stop $B
test:
	$(Q)docker/install build web test
	$(Q)$(MAKE) --no-print-directory $(JOBS) all tests $B/tests/fake_trainer
	$(Q)tests/run $B $(CTESTS)
# All rows of tests/layouts.def; `make test` runs those that cover all pairs.
LAYOUTS := $B/tests/f64_layout_rows $B/tests/test_layout_rows
test-layouts: $(LAYOUTS)
	$(Q)for t in $(LAYOUTS); do HONE_LAYOUTS=all $$t || exit 1; done

# Analysis: a stamp for every file that passed, so that a second run looks only at what changed.
L        := build/lint
ANALYSED := $(KERNELS) $(VECTOR) $(TRAINER) $(SERVER) $(CLI) $(wildcard */main.c server/cli/main.c)
CHECKED  := $(ANALYSED) $(wildcard tests/*.c)
# What a file is compiled with beside the common flags.
special   = $(if $(filter kernels/cpu/vec/%,$1),-DISA=v3 $(ISA.v3)) $(if $(filter tests/f64_%,$1),-DHONE_DOUBLE)
# EXPECT multiplies branches; sizes, numbers and structures in tests are their own.
LENIENT  := -readability-function-size,-bugprone-implicit-widening-of-multiplication-result,-bugprone-suspicious-include,-cert-err34-c,-bugprone-suspicious-memory-comparison
depends   = @mkdir -p $(@D); $(CC) -I. -D_GNU_SOURCE $(call special,$<) -MM -MP -MT $@ -MF $@.d $<

$L/%.tidy: % .clang-tidy
	$(depends)
	@echo "TIDY  $<"
	$(Q)clang-tidy --quiet $(if $(filter tests/%,$<),--checks=$(LENIENT)) $< \
	    -- -std=c17 -I. -D_GNU_SOURCE -fopenmp-simd $(call special,$<) >$@.out 2>$@.err || \
	    { cat $@.out $@.err; false; }
	@touch $@
$L/%.analysed: %
	$(depends)
	@echo "ANALYSE $<"
	$(Q)$(CC) -std=c17 -I. -D_GNU_SOURCE -O1 $(call special,$<) $(ANALYZER) -c $< -o /dev/null
	@touch $@

lint: $(patsubst %,$L/%.tidy,$(CHECKED))
	$(Q)clang-format --dry-run -Werror $(FORMATTED)
	$(Q)tests/lint
	@mkdir -p $L/cppcheck
	$(Q)cppcheck -q -j $(shell nproc) --cppcheck-build-dir=$L/cppcheck --std=c11 --inline-suppr --error-exitcode=1 \
	    --enable=warning,performance,portability -I. -D_GNU_SOURCE -DISA=v3 $(ANALYSED)

# gcc 12 loses what is stored in arrays and copied structures: clang-tidy and the sanitizers judge those two.
ANALYZER := -fanalyzer -Werror -Wno-analyzer-malloc-leak -Wno-analyzer-use-of-uninitialized-value
analyze: $(patsubst %,$L/%.analysed,$(ANALYSED))

# Every fuzz target for FUZZ_SECONDS, from the inputs that earlier runs found worth keeping.
FUZZ_SECONDS ?= 30
FUZZERS := $(patsubst tests/%.c,%,$(filter-out tests/fuzz_main.c,$(wildcard tests/fuzz_*.c)))
fuzz:
	$(Q)$(MAKE) --no-print-directory CONFIG=fuzz CC=clang $(patsubst %,build/fuzz-clang/tests/%,$(FUZZERS))
	$(Q)tests/fuzz $(FUZZ_SECONDS) $(patsubst %,build/fuzz-clang/tests/%,$(FUZZERS))

mutants:
	$(Q)tests/mutants
check-all:
	$(Q)tests/check-all

FORMATTED := $(shell find kernels trainer server tests -name '*.[ch]')
format:
	$(Q)clang-format -i $(FORMATTED)

clean:
	rm -rf build

-include $(shell find build -name '*.d' 2>/dev/null)

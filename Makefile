# For people; the build itself is CMake's (CMakeLists.txt, CMakePresets.json).
#   make             build/bin/shoal, build/lib/libshoal.a, build/lib/libshoal.so
#   make test        builds and runs the tests (WITHOUT=: all)   make quickstart  trains a small GPT in a minute
#   make asan tsan   the tests under sanitizers            make sim         the tests on the simulated device
#   make fuzz        FUZZ_SECONDS=60 FUZZ_TARGET=: searches for inputs that break a parser
#   make soak        SOAK_SECONDS=120: training that is killed and hurt at random, and must lose nothing
#   make gpu-bundle  what scripts/gpu-check needs on a machine with an NVIDIA GPU, in build/gpu-bundle
#   make check       formatting, layers, documentation     make format      formats the C files
#   make install     PREFIX=/usr/local DESTDIR=            make clean       removes all build folders
#   make deb         Debian packages, in build/deb         (make install, make deb: docs/INSTALL.md)
#   PRESET=core      of make, make install: the library without the outer ring, in build-core (docs/INSTALL.md)

# Packages that were unpacked without root (scripts/unpack-deps).
-include deps/env.mk

PREFIX ?= /usr/local
PRESET ?= release
BUILD = $(if $(filter release,$(PRESET)),build,build-$(PRESET))
VERSION = $$(sed -n 's/^project(shoal VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
JOBS := $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= $(JOBS)
# LABELS=one|other runs the tests with one of these labels, WITHOUT=one|other those with none, TESTS=regex those with such a name
# (docs/TESTING.md). WITHOUT= runs the long tests, too. Of two -R ctest takes the last.
WITHOUT ?= nightly
only = $(if $(LABELS),-L '^($(LABELS))$$') $(if $(TESTS),-R '$(TESTS)')
without = $(if $(1)$(WITHOUT),-LE '^($(1)$(if $(1),$(if $(WITHOUT),|))$(WITHOUT))$$')
LIBDIR ?= lib
PLUGINDIR ?= $(LIBDIR)
TARGET := $(DESTDIR)$(PREFIX)
TARGET_LIB := $(TARGET)/$(LIBDIR)
# ThreadSanitizer runs tests of code with threads of its own, and tests whose ranks are threads.
TSAN_TESTS := ^(base\.(pool|lend|log|fault)|accelerator|io|ops|conformance|comm|fault|autograd|data|text_data|preprocess|monitor|zero|engine|examples)
# It does not see into MPI's libraries, nor into the emulator of a GPU. Of hundreds of processes it sees one each. AddressSanitizer
# runs other shapes, models and plans in the same threads.
SAME_THREADS := comm_hosts_.*_(3_1|cyclic_2)|ops\.cpu\.(gemm|attention)|conformance_(cuda|cuda_checked|flat|trapped)|fault\.(json|engine\.posix)
SAME_ENGINE := engine\.(bert|config|fingerprints|hashes|lines|llama|pipeline_models|plan|exact_splits)|\.closed
NO_TSAN_TESTS := comm_mpi|comm_(hosts|near)_(openmpi|mpich|ucx)|comm_ucx|comm\.tree_test|$(SAME_THREADS)|$(SAME_ENGINE)
TSAN = -R '$(TSAN_TESTS)' -E '$(NO_TSAN_TESTS)' $(only) $(call without)
# Tests that have nothing to do with a device. The conformance suites choose the device's streams themselves.
NO_DEVICE_TESTS := \.closed|^layouts|^cluster|^(conformance|fault)\.comm|^comm\.|^launcher|^hub|^tokenizer|^fuzz|^cli\.(autotuning|elastic|orphans|mpi|ucx|fortran|peers)
# Tests whose result depends on how a device's streams run.
STREAM_TESTS := ^(autograd|zero|engine|fault\.engine|activation|inference|examples)
# Long tests for which the modes random and thread are enough.
STREAMS_ENOUGH := ^(zero\.complete_test$$|engine\.mesh_covering_test)
# A run each of how the simulated device's streams run: as late as possible (all tests), in a random order of this seed, in threads.
SIM_STREAMS ?= late 'random SHOAL_SIM_SEED=1' thread

.DEFAULT_GOAL := all
.PHONY: all test quickstart asan tsan sim fuzz gpu-bundle soak check format install install-files deb clean

all:
	@scripts/install-deps $(if $(filter core,$(PRESET)),core,build)
	@[ -f $(BUILD)/build.ninja ] || cmake --preset $(PRESET) -DSHOAL_TESTS=OFF >/dev/null
	@ninja -C $(BUILD) product
	@echo "built $$(ls $(BUILD)/bin/shoal 2>/dev/null | sed 's/$$/ and /')$(BUILD)/lib/libshoal.{a,so}"

test:
	@scripts/install-deps test
	@cmake --preset release -DSHOAL_TESTS=ON >/dev/null
	@ninja -C build
	@scripts/run-tests build -j $(TEST_JOBS) --no-tests=error $(only) $(call without)

quickstart: all
	@scripts/quickstart

asan:
	@scripts/install-deps test
	@cmake --preset asan -DCMAKE_BUILD_TYPE=Release >/dev/null
	@ninja -C build-asan
	@SHOAL_TEST_BRIEF=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 scripts/run-tests build-asan -j $(TEST_JOBS) --no-tests=error $(only) $(call without,plain)

# Optimised, because sanitizers are slow enough without. Old runtimes of ThreadSanitizer do not start with much address randomisation.
# A thread that ends gives its stack back. UCX's hook of that call takes a lock, in a thread that ThreadSanitizer has left: it crashes.
tsan:
	@scripts/install-deps test
	@cmake --preset tsan -DCMAKE_BUILD_TYPE=Release >/dev/null
	@set -e; targets=$$(scripts/test-targets build-tsan $(TSAN)); \
		[ -n "$$targets" ] || { echo "no test of these labels has threads"; exit 0; }; \
		ninja -C build-tsan $$targets; \
		export UCX_MEM_MMAP_HOOK_MODE=none; \
		$$(setarch -R true 2>/dev/null && echo setarch -R) scripts/run-tests build-tsan -j $(TEST_JOBS) $(TSAN)

sim:
	@scripts/install-deps test
	@cmake --preset release -DSHOAL_TESTS=ON >/dev/null
	@ninja -C build
	@for streams in $(SIM_STREAMS); do \
		echo "streams of the simulated device: $$streams"; \
		case $$streams in \
		late) mode= && set -- -E '$(NO_DEVICE_TESTS)|$(STREAMS_ENOUGH)' ;; \
		*) mode=SHOAL_SIM_STREAMS=$$streams && set -- -R '$(STREAM_TESTS)' -E '$(SAME_ENGINE)' ;; \
		esac; \
		env SHOAL_ACCELERATOR=sim $$mode scripts/run-tests build -j $(TEST_JOBS) --no-tests=error "$$@" $(only) $(call without) || exit 1; \
	done

fuzz:
	@scripts/install-deps fuzz
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) scripts/fuzz $(FUZZ_TARGET)

# What scripts/gpu-check needs on a machine with a GPU, in one folder: programs, their libraries, the emulator.
GPU_BUNDLE := build/gpu-bundle
gpu-bundle:
	@scripts/install-deps test
	@cmake --preset release -DSHOAL_TESTS=ON >/dev/null
	@ninja -C build shoal ops.conformance ops.cuda.attention_test conformance.accelerator accelerator.matrices_test cuda_emulator
	@rm -rf $(GPU_BUNDLE) && mkdir -p $(GPU_BUNDLE)/bin $(GPU_BUNDLE)/tests $(GPU_BUNDLE)/lib
	@cp build/bin/shoal $(GPU_BUNDLE)/bin
	@cd build/tests && cp ops.conformance ops.cuda.attention_test conformance.accelerator accelerator.matrices_test libcuda_emulator.so ../../$(GPU_BUNDLE)/tests
	@ldd build/bin/shoal build/tests/ops.conformance | sed -n 's|.*=> \(/[^ ]*\) .*|\1|p' | sort -u | grep -vE '/(libc|libm|ld-linux[^/]*|libpthread|libdl|librt)\.so' | xargs cp -Lt $(GPU_BUNDLE)/lib
	@strip $(GPU_BUNDLE)/bin/shoal $(GPU_BUNDLE)/tests/*
	@cp scripts/gpu-check $(GPU_BUNDLE)
	@du -sh $(GPU_BUNDLE)

soak: all
	@scripts/install-deps soak
	@SOAK_SECONDS=$(or $(SOAK_SECONDS),120) tests/soak/soak build/bin/shoal

check:
	@scripts/install-deps check
	scripts/check-format
	scripts/check-layers
	scripts/check-plain
	scripts/check-docs
	scripts/check-words

format:
	@scripts/install-deps check
	scripts/check-format --fix

install: all
	@$(MAKE) --no-print-directory install-files

# LIBDIR and PLUGINDIR are below PREFIX; a package may name others.
install-files:
	install -d $(TARGET)/bin $(TARGET_LIB)/pkgconfig $(TARGET_LIB)/cmake/Shoal $(TARGET)/$(PLUGINDIR) $(TARGET)/include/shoal
	install -m 644 $$(cat $(BUILD)/installed-headers) $(TARGET)/include/shoal
	install -m 644 $(BUILD)/lib/libshoal.a $(TARGET_LIB)
	cp -P $(BUILD)/lib/libshoal.so* $(TARGET_LIB)
	for plugin in $(BUILD)/lib/libshoal_mpi_*.so $(BUILD)/lib/libshoal_ucx.so; do [ ! -f "$$plugin" ] || install -m 755 "$$plugin" $(TARGET)/$(PLUGINDIR); done
	[ ! -f $(BUILD)/bin/shoal ] || { install -m 755 $(BUILD)/bin/shoal $(TARGET)/bin && scripts/man-pages $(BUILD)/bin/shoal $(TARGET)/share/man && \
	    scripts/completions $(BUILD)/bin/shoal $(TARGET)/share; }
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/$(LIBDIR)' 'Name: shoal' "Version: $(VERSION)" \
	    'Description: distributed training of transformer models' "Requires.private: $$(cat $(BUILD)/requires)" \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${libdir} -lshoal' "Libs.private: $$(cat $(BUILD)/libs) -lm -pthread" \
	    >$(TARGET_LIB)/pkgconfig/shoal.pc
	install -m 644 $(BUILD)/package/*.cmake $(TARGET_LIB)/cmake/Shoal
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

deb: all
	@scripts/install-deps deb
	@scripts/deb $(BUILD)

clean:
	rm -rf build build-*/

# For people; the build itself is CMake's (CMakeLists.txt, CMakePresets.json).
#   make             build/bin/shoal, build/lib/libshoal.a, build/lib/libshoal.so
#   make test        builds and runs the tests             make quickstart  trains a small GPT in a minute
#   make asan tsan   the tests under sanitizers            make sim         the tests on the simulated device
#   make fuzz        FUZZ_SECONDS=60 FUZZ_TARGET=: searches for inputs that break a parser
#   make soak        SOAK_SECONDS=120: training that is killed and hurt at random, and must lose nothing
#   make check       formatting, layers, documentation     make format      formats the C files
#   make install     PREFIX=/usr/local DESTDIR=            make clean       removes all build folders

PREFIX ?= /usr/local
VERSION = $$(build/bin/shoal --version | cut -d' ' -f2)
JOBS := $(shell nproc 2>/dev/null || echo 2)
TEST_JOBS ?= $(JOBS)
CTEST := ctest --output-on-failure -j $(TEST_JOBS)
TARGET := $(DESTDIR)$(PREFIX)
# What ThreadSanitizer is for: everything with threads of its own or ranks as threads.
TSAN_TESTS := ^(base\.(pool|lend|log|fault)|accelerator|io|ops|conformance|comm|fault|autograd|data|monitor|zero|engine|examples)
# Hosts, launchers and transports are the same under a sanitizer or on another device; they take minutes of waiting.
HOST_TESTS := ^cluster
# Of the suites of two levels one order of hosts is enough for AddressSanitizer, and minutes of searching, training and
# waiting find nothing that shorter tests of the same code do not.
NO_ASAN_TESTS := $(HOST_TESTS)|comm_hosts_.*_(3_1|cyclic_2)$$|^cli\.(plan_layout|tutorial|elastic)$$
# Not MPI's own threads, whose libraries it does not see into, not hundreds of processes that meet and are killed by the
# clock, and not other shapes, models and plans in the same threads, which AddressSanitizer has. With io_uring the kernel
# has the threads; the same tests with threads of ours are NAME.posix.
SAME_THREADS := comm_hosts_.*_(3_1|cyclic_2)$$|ops\.cpu\.(gemm|attention)|conformance_(flat|trapped)|fault\.json
SAME_ENGINE := engine\.(bert|config|fingerprints|hashes|lines|llama|pipeline_models|plan|splits)
NO_TSAN_TESTS := ^(engine\.offload_test|fault\.engine)$$|comm_mpi|comm_(hosts|near)_(openmpi|mpich|ucx)|comm_ucx|comm\.tree_test|$(SAME_THREADS)|$(SAME_ENGINE)
NO_DEVICE_TESTS := $(HOST_TESTS)|^(conformance|fault)\.comm|^comm\.|^launcher|^hub|^tokenizer|^fuzz|^cli\.(autotuning|elastic|orphans|mpi|ucx|fortran|peers)
# What depends on how a device's streams run, but other models and files; the conformance suites choose that themselves.
STREAM_TESTS := ^(autograd|zero|engine|fault\.engine|activation|inference|examples)
# Long ones of them, for which those passes are enough.
STREAMS_ENOUGH := ^(zero\.complete_test|engine\.mesh_covering_test)$$
# How its streams run: in a random order of this seed, in threads.
SIM_STREAMS ?= 'random SHOAL_SIM_SEED=1' thread

.PHONY: all test quickstart asan tsan sim fuzz soak check format install clean

all:
	@scripts/install-deps build
	@[ -f build/build.ninja ] || cmake --preset release -DSHOAL_TESTS=OFF >/dev/null
	@ninja -C build shoal shoal_static shoal_shared
	@echo "built build/bin/shoal and build/lib/libshoal.{a,so}"

test:
	@scripts/install-deps test
	@cmake --preset release -DSHOAL_TESTS=ON >/dev/null
	@ninja -C build
	@$(CTEST) --test-dir build

quickstart: all
	@scripts/quickstart

asan:
	@scripts/install-deps test
	@cmake --preset asan -DCMAKE_BUILD_TYPE=Release >/dev/null
	@ninja -C build-asan
	@UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 $(CTEST) --test-dir build-asan -E '$(NO_ASAN_TESTS)'

# Optimised, because sanitizers are slow enough without. Old runtimes of ThreadSanitizer do not start with much address randomisation.
tsan:
	@scripts/install-deps test
	@cmake --preset tsan -DCMAKE_BUILD_TYPE=Release >/dev/null
	@ninja -C build-tsan
	@$$(setarch -R true 2>/dev/null && echo setarch -R) $(CTEST) --test-dir build-tsan -R '$(TSAN_TESTS)' -E '$(NO_TSAN_TESTS)'

sim:
	@scripts/install-deps test
	@cmake --preset release -DSHOAL_TESTS=ON >/dev/null
	@ninja -C build
	@SHOAL_ACCELERATOR=sim $(CTEST) --test-dir build -E '$(NO_DEVICE_TESTS)|$(STREAMS_ENOUGH)'
	@for streams in $(SIM_STREAMS); do \
		echo "SHOAL_SIM_STREAMS=$$streams"; \
		env SHOAL_ACCELERATOR=sim SHOAL_SIM_STREAMS=$$streams $(CTEST) --test-dir build -R '$(STREAM_TESTS)' -E '$(SAME_ENGINE)' || exit 1; \
	done

fuzz:
	@scripts/install-deps fuzz
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) scripts/fuzz $(FUZZ_TARGET)

soak: all
	@scripts/install-deps soak
	@SOAK_SECONDS=$(or $(SOAK_SECONDS),120) tests/soak/soak build/bin/shoal

check:
	@scripts/install-deps check
	scripts/check-format
	scripts/check-layers
	scripts/check-docs

format:
	@scripts/install-deps check
	scripts/check-format --fix

install: all
	install -d $(TARGET)/bin $(TARGET)/lib/pkgconfig $(TARGET)/include/shoal
	install -m 755 build/bin/shoal $(TARGET)/bin
	install -m 644 include/shoal/*.h $(TARGET)/include/shoal
	install -m 644 build/lib/libshoal.a $(TARGET)/lib
	cp -P build/lib/libshoal.so* $(TARGET)/lib
	for plugin in build/lib/libshoal_mpi_*.so build/lib/libshoal_ucx.so; do [ ! -f "$$plugin" ] || install -m 755 "$$plugin" $(TARGET)/lib; done
	scripts/man-pages build/bin/shoal $(TARGET)/share/man
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: shoal' "Version: $(VERSION)" \
	    'Description: distributed training of transformer models' "Requires.private: $$(cat build/requires)" \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${prefix}/lib -lshoal' "Libs.private: $$(cat build/libs) -lm -pthread" \
	    >$(TARGET)/lib/pkgconfig/shoal.pc
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

clean:
	rm -rf build build-*/

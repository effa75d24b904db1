# SPDX-License-Identifier: Apache-2.0
# A thin front to CMake. Each target sets up what it needs; "make help" lists them.
.DEFAULT_GOAL := build
.PHONY: build all demo serve test bench format clean install-deps help

PORT   ?= 8080
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PROMPT ?= Once upon a time there was a little fox who
MODEL  ?= models/tale-14m
DRAFT  ?= models/tale-14m-hydra-pp
WEIGHTS ?= w8a8
HEAD_WEIGHTS ?= w8a8
# Tokens that heads may draft: frequent ones of stories, like the prompt. Empty: all.
DRAFT_VOCAB ?= $(DRAFT)/draft_vocab_stories.json
# Which tree pays depends on the machine and its hour, and so does how sure heads must be of a token: the demo measures
# each tree with each smallest probability and goes on with the fastest.
TREES  ?= [[0]] [[0],[0,0]] [[0],[0,0],[0,0,0]] [[0],[0,0],[0,0,0],[0,0,0,0]] $(DRAFT)/trees.json
P_MINS ?= 0 0.15
# Most tokens that are looked up in the text; where that is fastest, heads alone stand beside it.
LOOKUPS ?= 0 4 8

# $(call cmake_build,target): configure, then build one target of the release preset.
cmake_build = cmake --preset release --log-level=WARNING && cmake --build --preset release -j $(JOBS) --target $(1)

build:  ## build/release/hydrant (the default)
	@command -v cmake >/dev/null || { echo "cmake is missing: run scripts/install-deps first" >&2; exit 2; }
	@$(call cmake_build,hydrant)

all: install-deps  ## everything: the binary, tests, benchmarks, example
	@$(call cmake_build,all)

demo: install-deps build  ## the embedded model with its heads on a prompt, beside plain decoding (PROMPT="...")
	build/release/hydrant run --model $(MODEL) --draft $(DRAFT) --weights $(WEIGHTS) --head-weights $(HEAD_WEIGHTS) $(addprefix --draft-vocab ,$(DRAFT_VOCAB)) $(foreach tree,$(TREES),--tree '$(tree)') $(addprefix --draft-p-min ,$(P_MINS)) $(addprefix --lookup ,$(LOOKUPS)) --template none --prompt "$(PROMPT)" --max-tokens 200 --stats --compare-plain

serve: install-deps build  ## the embedded model with its heads as a server with a page to try it on (PORT=8080)
	build/release/hydrant serve --port $(PORT) --model $(MODEL) --draft $(DRAFT) --weights $(WEIGHTS) --head-weights $(HEAD_WEIGHTS) $(addprefix --draft-vocab ,$(DRAFT_VOCAB))

test: all  ## every test but the slow sanitizer and fuzz runs
	ctest --preset release -j 2 --no-tests=error

bench: all  ## the benchmarks, one after the other
	@for program in build/release/benchmarks/*_benchmark; do [ -x "$$program" ] && echo "== $$program" && "$$program" || exit 1; done

format:  ## clang-format-16 over every C++ file
	git ls-files '*.h' '*.cc' | xargs clang-format-16 -i

clean:  ## remove build/release
	rm -rf build/release

install-deps:
	@scripts/install-deps

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##\(.*\)/  make \1 \2/p' Makefile

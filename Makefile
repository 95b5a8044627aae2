# Needs Go 1.26+, gcc, make and git. Run `make` to list all targets.

GO ?= go
SEED ?= 1
FUZZTIME ?= 10s
BENCH ?=
SCHEMAS ?=
KUBECONFORM = github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
VULN = golang.org/x/vuln/cmd/govulncheck@v1.9.0
LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
QUICKSTART = runs/quickstart
TORCH = torch/worker/venv

.DEFAULT_GOAL := help
.PHONY: help build quickstart test race soak mpi torch-test bench lint vuln fuzz cover docs deploy-check clean

help: ## list all targets
	@echo "Usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo "Variables: SEED=$(SEED) for quickstart, FUZZTIME=$(FUZZTIME) for each fuzz test, BENCH=REGEXP to select measurements,"
	@echo "SCHEMAS=default or a location for deploy-check; default downloads the schemas."

build: ## build bin/easyrl
	$(GO) build -o bin/easyrl ./cmd/easyrl

quickstart: build ## teach a small model to add, about a minute on two cores; replaces runs/quickstart
	rm -rf $(QUICKSTART)
	$(GO) run ./examples/addition -out $(QUICKSTART)/data -seed $(SEED)
	bin/easyrl sft configs/quickstart-sft.toml -set run.seed=$(SEED)
	bin/easyrl train configs/quickstart.toml -set run.seed=$(SEED)
	@echo
	@echo "Before and after $(QUICKSTART)/grpo (eval: share of right answers to held-out sums):"
	@bin/easyrl report $(QUICKSTART)/grpo

test: ## vet, build without cgo, and run all tests
	$(GO) vet ./...
	CGO_ENABLED=0 $(GO) build ./...
	@{ $(GO) test -timeout 15m ./...; echo "status $$?"; } 2>&1 | awk -f .ci/failed.awk

race: ## run all tests under the race detector, apart from packages without concurrency (.ci/sequential)
	@{ $(GO) test -race -timeout 25m $$($(GO) list ./... | grep -vxFf .ci/sequential); echo "status $$?"; } 2>&1 | awk -f .ci/failed.awk

soak: ## run the long versions of tests, with more cases
	@{ EASYRL_SOAK=1 $(GO) test -count=1 -timeout 2h ./...; echo "status $$?"; } 2>&1 | awk -f .ci/failed.awk

mpi: ## test ranks over MPI; needs mpicc and mpirun
	CC=mpicc $(GO) vet -tags mpi ./parallel/mpi ./parallel/paralleltest ./run/ranks ./cmd/easyrl
	CC=mpicc $(GO) test -tags mpi -count=1 -timeout 5m ./parallel/mpi
	CC=mpicc $(GO) test -tags mpi -count=1 -timeout 5m -run TestMPI ./run/ranks ./cmd/easyrl

torch-test: $(TORCH)/installed ## test PyTorch ranks; installs PyTorch into torch/worker/venv on the first call, several GB
	cd torch/worker && venv/bin/python -m pytest -q tests
	EASYRL_TORCH=$(CURDIR)/$(TORCH)/bin/python $(GO) test -count=1 -timeout 30m ./torch ./cmd/easyrl -run 'TestPython|TestTorch'

$(TORCH)/installed: torch/worker/requirements.txt
	python3 -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --requirement $< pytest==9.2.0
	touch $@

bench: build ## compare with PyTorch, TRL and oneDNN (installed by bench/peers/setup), into bench/results
	[ -d $(QUICKSTART)/sft ] || $(MAKE) quickstart
	$(GO) run ./bench -run '$(BENCH)'

lint: ## run the linter, built on the first call
	$(GO) run $(LINT) run

vuln: ## look for known vulnerabilities in what is linked; downloads the database of vuln.go.dev
	$(GO) run $(VULN) ./...

fuzz: ## run each fuzz test for FUZZTIME
	@set -e; $(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' | \
	while read -r package name; do \
		echo "$$package $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$$package"; \
	done

cover: ## write test coverage to cover.html
	$(GO) test -timeout 15m -coverprofile cover.out ./...
	$(GO) tool cover -html cover.out -o cover.html
	$(GO) tool cover -func cover.out | tail -n 1

docs: ## regenerate docs/configuration.md from the code
	$(GO) generate ./configs

deploy-check: ## check deploy/ with shellcheck, systemd-analyze and kubectl if installed; with SCHEMAS also with kubeconform
	EASYRL_DEPLOY_CHECK=1 $(GO) test -count=1 -v ./deploy
	[ -z "$(SCHEMAS)" ] || $(GO) run $(KUBECONFORM) -strict -summary -kubernetes-version 1.34.0 -schema-location '$(SCHEMAS)' \
		-skip Kustomization,PodMonitor -ignore-filename-pattern 'adapter-values|torch/instances' deploy/kubernetes

clean: ## remove build outputs; runs stay
	rm -rf bin cover.out cover.html

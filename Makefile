# Daybook. The two commands: make demo, make test.

GO      ?= go
BUILD   := build
BENCHES := advise attribution blame ext4nvj guest-lvm guest-volumes guests guests-io-cost jfsnvj memory-volumes nvjournal overhead scale shares volumes

# ext4nvj.ko is built for these kernels of the guests: make kernel KERNELS="6.1 6.12".
KERNEL  ?= 6.1
KERNELS ?= $(KERNEL)

# The release in preparation, and the version that "daybook version" prints: the
# release, and the commit where there is a repository to ask.
RELEASE := v0.1.0
VERSION ?= $(RELEASE)$(shell git describe --always --dirty --exclude='*' 2>/dev/null | sed 's/^/+g/')
BIN     ?= bin

# Programs are static, so that they run on any distribution, and hold no path of
# the builder, so that two builds of one commit are the same. Tests have the same
# flags: what both need is then compiled once.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)

# What the tests and the demo need of the system, as Debian packages; the
# set-up installs what is missing, if it is root and there is apt-get.
.PHONY: all build build-vm build-vm-arm64 demo test soak nvjournal kernel vm-test suites vm-fetch k8s-test k8s-guest-test k8s-image bench-k8s setup setup-test setup-bench setup-vm setup-kernel setup-native setup-packages setup-k8s lint generate man completions packages packages-test manifests chart-test clean help papers $(addprefix bench-,$(BENCHES))

all: build

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20
	@echo "bench-NAME          NAME is one of: $(BENCHES)"

build: ## build bin/daybook, a static program
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o $(BIN)/daybook ./cmd/daybook

build-vm: ## build bin/daybook-vm, which runs commands in guests (docs/vm.md)
	$(GO) build -o bin/daybook-vm ./cmd/daybook-vm

build-vm-arm64: ## build bin/daybook-vm-arm64, the init of guests with a kernel for arm64
	GOARCH=arm64 $(GO) build -o bin/daybook-vm-arm64 ./cmd/daybook-vm

demo: setup build ## the paper's experiment on an embedded disk, two minutes (root)
	bin/daybook demo

test: setup-test build build-vm ## all tests; those on the real kernel need root
	$(MAKE) nvjournal kernel || [ -z "$${DAYBOOK_REQUIRE_ALL:-}" ]
	[ -z "$${DAYBOOK_REQUIRE_ALL:-}" ] || bin/daybook-vm rootfs >/dev/null
	scripts/test-all

soak: setup-test ## the long forms of nvjournal's tests, an hour or more
	scripts/test-nvjournal soak

nvjournal: setup ## build nvjournal/build: libnvjournal.a, .so, nvj (docs/nvjournal.md)
	$(MAKE) -C nvjournal

kernel: setup-kernel build-vm ## build ext4nvj.ko and jfsnvj.ko for guests' kernels in nvjournal/kernel/build (docs/ext4nvj.md)
	for kernel in $(KERNELS); do $(MAKE) -C nvjournal/kernel KERNEL=$$kernel all faults || exit 1; done

vm-test: KERNELS = 6.1 6.12
vm-test: setup-test build build-vm nvjournal kernel suites ## all tests that run in guests, also those that take long, on each kernel
	scripts/setup build dkms packages
	bin/daybook-vm rootfs >/dev/null
	bin/daybook-vm rootfs --engines >/dev/null
	$(MAKE) chart-test
	DAYBOOK_REQUIRE_ALL=1 DAYBOOK_VM_LONG=1 $(GO) test -count=1 -p 1 -timeout 180m $$(grep -rl --include='*_test.go' --exclude-dir=build 'daybook/vm' . | xargs -n1 dirname | sort -u)

suites: ## install file-system tests that others wrote, which vm-test runs
	scripts/setup build suites
	PATH="$$HOME/.cargo/bin:$$PATH" cargo install --quiet --locked --root nvjournal/build/suites pjdfstest@0.2.2

vm-fetch: setup-vm build-vm ## fetch the guests' kernels into the cache; as root, build the root file system with systemd
	bin/daybook-vm fetch
	[ "$$(id -u)" != 0 ] || bin/daybook-vm rootfs

setup: ## install what building and the demo need
	scripts/setup build

setup-test: ## install what the tests need besides
	scripts/setup build test vm

setup-bench: ## install what the benchmarks with fio or databases need
	scripts/setup build bench

setup-vm: ## install what guests need
	scripts/setup build vm

setup-kernel: ## install what building kernel modules needs
	scripts/setup build kernel

setup-native: ## install what building the kernel of the native benchmarks needs
	scripts/setup build native

setup-packages: ## install what building and testing packages needs
	scripts/setup build packages

setup-k8s: ## install what k8s-test needs, and build the programs of a Kubernetes node into the cache: 20 minutes, once
	scripts/setup build kubernetes
	scripts/kubernetes

lint: setup-kernel build-vm ## gofmt, go vet, staticcheck, clang-format, sparse, and that generated files are fresh
	scripts/setup build lint
	scripts/lint

generate: ## compile the BPF programs again (clang)
	scripts/setup build lint
	$(GO) generate ./internal/...
	scripts/bpf-sums >internal/bpf.sums

man: build ## manual pages in build/man
	rm -rf $(BUILD)/man && mkdir -p $(BUILD)/man
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} bin/daybook man $(BUILD)/man

completions: build ## shell completion in build/completions
	mkdir -p $(BUILD)/completions
	for shell in bash fish zsh; do bin/daybook completion $$shell > $(BUILD)/completions/daybook.$$shell || exit 1; done

bench-advise bench-guest-lvm bench-memory-volumes bench-shares bench-volumes bench-nvjournal: setup-bench
bench-ext4nvj: setup-vm setup-native nvjournal kernel
bench-jfsnvj: setup-vm setup-native build-vm nvjournal
bench-memory-volumes: setup-vm setup-native nvjournal build-vm

$(addprefix bench-,$(BENCHES)): bench-%: setup build
	mkdir -p $(BUILD)/bench
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o $(BUILD)/daybook-bench ./cmd/daybook-bench
	$(BUILD)/daybook-bench $* --output $(BUILD)/bench/$*.json $(BENCHFLAGS)

papers: setup-bench setup-vm setup-native build nvjournal kernel ## run all benchmarks of the papers, and write build/papers.html with every figure (root; PAPERSFLAGS="--only paper2")
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o $(BUILD)/daybook-bench ./cmd/daybook-bench
	$(BUILD)/daybook-bench papers $(PAPERSFLAGS)

packages: setup-packages ## .deb, .rpm, container image, SBOM and checksums in build/packages (docs/install.md)
	VERSION=$(VERSION) PACKAGE_VERSION=$${PACKAGE_VERSION:-$$(packaging/version $(RELEASE))} \
		SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} packaging/build $(PACKAGEFLAGS)

packages-test: setup-packages setup-vm build-vm ## build all packages twice; install, upgrade, remove and purge them in chroots and in a guest (root)
	DAYBOOK_REQUIRE_ALL=1 DAYBOOK_VM_LONG=1 $(GO) test -count=1 -timeout 60m -v ./packaging

manifests: ## render the Helm chart into deploy/kubernetes/daybook.yaml; fetches Helm as a Go module
	mkdir -p $(BUILD)
	$(GO) -C deploy/helm/tools run . ../daybook >$(BUILD)/daybook.yaml && mv $(BUILD)/daybook.yaml deploy/kubernetes/daybook.yaml

chart-test: ## the Helm chart: lint, schema of values, rendered objects against the types of the Kubernetes API
	$(GO) -C deploy/helm/tools vet ./... && $(GO) -C deploy/helm/tools test -count=1 ./...

# What the tests on a node need: the agent's image, and what the chart renders.
k8s-image: setup-k8s
	VERSION=$(VERSION) PACKAGE_VERSION=$(RELEASE:v%=%) SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
		packaging/build -o $(BUILD)/k8s -a amd64 -f image
	$(GO) -C deploy/helm/tools run . ../daybook config.apiServer=true config.cgroupRoot=/CGROUP_ROOT config.criSocket=/run/CRI_SOCKET \
		config.weights.burstable=100 config.weights.besteffort=20 metrics.serviceMonitor.enabled=true metrics.serviceMonitor.interval=1s >$(BUILD)/k8s/agent.yaml

ON_A_NODE = DAYBOOK_KUBERNETES=$$(scripts/kubernetes) DAYBOOK_KUBERNETES_IMAGE=$$(ls $(CURDIR)/$(BUILD)/k8s/*.tar) \
	DAYBOOK_KUBERNETES_MANIFEST=$(CURDIR)/$(BUILD)/k8s/agent.yaml DAYBOOK_KUBERNETES_FIGURES=$(CURDIR)/$(BUILD)/bench/k8s.json \
	DAYBOOK_KUBERNETES_DELETIONS=$(DELETIONS) DAYBOOK_KUBERNETES_PODS=$(PODS) DAYBOOK_KUBERNETES_SECONDS=$(SECONDS) \
	$(GO) test -count=1 -timeout 120m -v ./internal/agent

k8s-test: k8s-image ## the agent on a node with a real kubelet and control plane (root; DELETIONS=500, PODS=200; docs/kubernetes.md)
	$(ON_A_NODE) -run 'OnARealNode$$'

k8s-guest-test: k8s-image vm-fetch ## the same on cgroup v2 with the systemd driver: emulated guests as the node, 10 to 15 minutes for each kernel
	DAYBOOK_REQUIRE_ALL=1 $(ON_A_NODE) -run 'TestGuestNodeWithSystemdRunsTheAgent$$'

bench-k8s: k8s-image ## a database beside a noisy pod on such a node, read from Prometheus; 20 minutes (SECONDS=60: each window)
	$(ON_A_NODE) -run 'TestADatabaseBesideANoisyPodOnARealNode'
	$(GO) build -ldflags "-X main.version=$(VERSION)" -o $(BUILD)/daybook-bench ./cmd/daybook-bench
	$(BUILD)/daybook-bench k8s $(BENCHFLAGS)

clean: ## remove what was built
	rm -rf bin $(BUILD)
	$(MAKE) -s -C nvjournal clean

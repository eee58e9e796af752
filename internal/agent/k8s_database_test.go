package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/daemon/node"
	"github.com/daybook-project/daybook/internal/kubetest"
	"github.com/daybook-project/daybook/internal/needs"
)

// Variables of the measurements on a real node.
const (
	// figuresVariable is the file that gets the figures; "": none.
	figuresVariable = "DAYBOOK_KUBERNETES_FIGURES"
	// secondsVariable is the length of each window that is measured.
	secondsVariable = "DAYBOOK_KUBERNETES_SECONDS"
)

// measurement is when the figures of this process began: those of two are not compared.
var measurement = time.Now().UTC().Truncate(time.Second)

// keepFigures adds figures to the file, if there is one.
func (s *site) keepFigures(change func(*node.Result)) {
	s.t.Helper()
	if path := os.Getenv(figuresVariable); path != "" {
		s.do(node.Update(path, change))
	}
}

// numberFrom reads a number of a variable.
func numberFrom(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		t.Fatalf("%s is %q: want a whole number above 0", variable, text)
	}
	return number
}

// A database and the noise share a disk by their weights.
const (
	databaseWeight = 700
	noiseWeight    = 300
	target         = float64(databaseWeight) / (databaseWeight + noiseWeight)
)

// MariaDB beside a noisy Deployment on one disk: shares and the latency of syncs, as a real
// Prometheus has them of the agent. "make bench-k8s" keeps the figures.
func TestADatabaseBesideANoisyPodOnARealNode(t *testing.T) {
	kubetest.Programs(t)
	kubetest.Enter(t, func(t *testing.T, w *containertest.Workshop) { checkDatabase(t, w) })
}

// sharedDisk is a simulated disk with a partition for each of two volumes.
type sharedDisk struct {
	*disksim.Disk
	db, noise blockdev.Partition
}

const (
	sharedDiskBytes = 4 << 30
	partitionBytes  = 1536 << 20
)

func newSharedDisk(t *testing.T) sharedDisk {
	t.Helper()
	model, err := disksim.Preset("hdd")
	if err != nil {
		t.Fatal(err)
	}
	model.BandwidthBytesPerSecond, model.FlushSeconds = 60e6, 0.0005 // as in bench-volumes
	if _, err := disksim.Recover(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	simulated, err := disksim.Create(t.Context(), disksim.Config{
		Name: fmt.Sprint("k8s-", os.Getpid()), SizeBytes: sharedDiskBytes, Parameters: model, Scheduler: blockdev.BFQ, OwnerBound: true})
	if err != nil {
		t.Fatal(err)
	}
	d := sharedDisk{Disk: simulated}
	t.Cleanup(func() {
		err := errors.Join(blockdev.RemovePartitions(d.Device, 2), d.Delete(context.Background()))
		if err != nil {
			t.Error(err)
		}
	})
	for name, value := range control.FairTunables() {
		if err := d.Device.SetTunable(name, strconv.FormatUint(value, 10)); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := blockdev.AddPartitions(d.Device, 2, partitionBytes)
	if err != nil {
		t.Fatal(err)
	}
	d.db, d.noise = parts[0], parts[1]
	return d
}

// instant switches the disk's delays off and on.
func (d sharedDisk) instant(t *testing.T, on bool) {
	t.Helper()
	if err := d.SetInstant(on); err != nil {
		t.Fatal(err)
	}
}

// bytesOf is what a partition has read and written.
func bytesOf(t *testing.T, p blockdev.Partition) (bytes uint64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(p.Node), "stat"))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 7 {
		t.Fatalf("%s: %q, %v", p.Node, text, err)
	}
	for _, field := range []string{fields[2], fields[6]} {
		sectors, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes += sectors * 512
	}
	return bytes
}

func checkDatabase(t *testing.T, w *containertest.Workshop) {
	for _, tool := range []string{"mariadbd", "mariadb-install-db", "sysbench"} {
		needs.Tool(t, tool)
	}
	seconds := time.Duration(numberFrom(t, secondsVariable, 60)) * time.Second
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	disk := newSharedDisk(t)
	disk.instant(t, true)
	seed := seedOf(t, w)
	s := &site{Node: kubetest.Start(t, w), t: t, tree: tree}
	s.CRI.Import(os.Getenv(nodeImageVariable))
	monitor := s.deployAgent(configured(node.Observed, disk))
	prometheus := s.StartPrometheus(monitor)
	s.volume("shop", "pv-db", "data-db-0", disk.db.Node)
	s.volume("shop", "pv-noise", "noise", disk.noise.Node)
	s.apply(claimOf("shop", "noise", "pv-noise"), workload("Deployment", "noise", noiseWeight, writersPod("noise")))
	noisy := s.podOf("shop", "app=noise")
	s.awaitRunning("shop", noisy)
	var result node.Result
	for _, load := range []node.Load{node.Writers, node.Database} {
		pod := writersPod("data")
		if load == node.Database {
			pod = databasePod(seed)
		}
		s.apply(workload("StatefulSet", "db", databaseWeight, pod))
		s.awaitRunning("shop", "db-0")
		if load == node.Database {
			s.Await("the database works", func() bool {
				// The server has copied its data, and its clients make it write.
				before := bytesOf(t, disk.db)
				time.Sleep(time.Second)
				return bytesOf(t, disk.db) > before+100<<10 && s.exists("shop", "db-0", "mariadbd")
			})
		}
		settings := []node.Setting{node.Observed, node.Placed, node.Controlled}
		if load == node.Database {
			settings = append([]node.Setting{node.Alone}, settings...) // what it can do at all
		}
		for _, setting := range settings {
			t.Run(fmt.Sprintf("%s, %s", load, setting), func(t *testing.T) {
				s := s.in(t)
				// Control compares what the disk does, so the disk has its delays before.
				disk.instant(t, false)
				noisy = s.makeNoise(setting != node.Alone, noisy)
				s.setAgent(configured(setting, disk))
				switch setting {
				case node.Observed, node.Alone:
					s.Await("no journal is placed", func() bool {
						return s.journalOf(disk.db.Dev) == "/" && (setting == node.Alone || s.journalOf(disk.noise.Dev) == "/")
					})
				default:
					s.awaitPlaced("shop", "db-0", disk.db.Dev)
					s.awaitPlaced("shop", noisy, disk.noise.Dev)
				}
				// Nothing that an earlier agent saw being written is written out while this one counts.
				for _, volume := range []string{"pv-db", "pv-noise"} {
					if volume == "pv-noise" && setting == node.Alone {
						continue // it is not mounted
					}
					s.do(atomicfile.SyncFileSystem("/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/" + volume))
				}
				result.Phases = append(result.Phases, s.measure(prometheus, disk, load, setting, seconds))
			})
		}
		disk.instant(t, true)
		s.do(s.API.Delete("/apis/apps/v1/namespaces/shop/statefulsets/db"))
		s.Await("the pod has ended", func() bool { return s.pod("shop", "db-0") == nil })
	}
	// Its share says little of a database that waits for its syncs; what it gets done does.
	if err := result.CheckHarm(); err != nil {
		t.Error(err)
	}
}

// makeNoise starts or ends the noisy pod, unless it is so already. It returns the name of the
// pod; "": there is none.
func (s *site) makeNoise(wanted bool, noisy string) string {
	s.t.Helper()
	if wanted == (noisy != "") {
		return noisy
	}
	replicas := 0
	if wanted {
		replicas = 1
	}
	s.do(s.API.Patch("/apis/apps/v1/namespaces/shop/deployments/noise", kubetest.Object{"spec": kubetest.Object{"replicas": replicas}}))
	if !wanted {
		s.Await("the noisy pod has ended", func() bool { return s.pod("shop", noisy) == nil })
		return ""
	}
	noisy = s.podOf("shop", "app=noise")
	s.awaitRunning("shop", noisy)
	return noisy
}

// measure measures after some seconds in which control finds the weights.
func (s *site) measure(prometheus *kubetest.Prometheus, disk sharedDisk, load node.Load, setting node.Setting, seconds time.Duration) node.Phase {
	s.t.Helper()
	s.Await("Prometheus has the agent's figures of the pods", func() bool {
		now := time.Now()
		metrics := []string{`daybook_charged_write_bytes_total{container=~"shop/db-0(/.*)?"}`, `daybook_wait_duration_seconds_count{container=~"shop/db-0(/.*)?"}`}
		if setting != node.Alone {
			metrics = append(metrics, `daybook_charged_write_bytes_total{container=~"shop/noise-.*"}`)
		}
		for _, metric := range metrics {
			if _, err := prometheus.Query("sum(increase("+metric+"[15s]))", now); err != nil {
				return false
			}
		}
		return true
	})
	// A disk's share of a minute is some tenths of a point off by chance: BFQ serves in slices, and
	// jbd2 commits in bursts. The goal is half a point, so several minutes are measured for it.
	warmUp, windows := 15*time.Second, 1
	if setting == node.Controlled {
		warmUp = time.Minute
		if load == node.Writers {
			windows = controlledWindows
		}
	}
	time.Sleep(warmUp)
	readings := []reading{disk.read(s.t)}
	for n := range windows {
		time.Sleep(time.Until(readings[0].at.Add(time.Duration(n+1) * seconds)))
		readings = append(readings, disk.read(s.t))
	}
	p := s.phase(prometheus, disk, readings[0], readings[windows])
	p.Load, p.Setting, p.Measurement = load, setting, measurement
	for n := range windows {
		if windows == 1 {
			break
		}
		w := s.phase(prometheus, disk, readings[n], readings[n+1])
		p.Windows = append(p.Windows, node.Window{Seconds: w.Seconds, Share: w.Share, DiskShare: w.DiskShare})
		s.t.Logf("window %d: share %.2f %% by Prometheus, %.2f %% by the disk", n+1, 100*w.Share, 100*w.DiskShare)
	}
	if load == node.Database {
		p.Transactions = s.transactions(readings[0].at, readings[windows].at)
		rate, off := p.TransactionRate()
		s.t.Logf("%.1f transactions/s (standard error %.1f)", rate, off)
	}
	s.t.Logf("share %.2f %% by Prometheus, %.2f %% by the disk (target %.0f %%) in %.0f s; %.0f syncs/s, mean %.1f ms, p99 %.0f ms; %.1f MB/s of both",
		100*p.Share, 100*p.DiskShare, 100*target, p.Seconds, p.SyncsPerSecond, 1e3*p.MeanSyncSeconds, 1e3*p.P99SyncSeconds, p.BytesPerSecond/1e6)
	if setting == node.Controlled || s.t.Failed() {
		s.t.Log(s.agentLog())
	}
	// What the agent says of shares must be what the disk did.
	if off := p.Share - p.DiskShare; off < -0.05 || off > 0.05 {
		s.t.Errorf("the agent's share is %+.1f points off the disk's", 100*off)
	}
	s.keepFigures(func(r *node.Result) {
		r.Target = target
		for i, old := range r.Phases {
			if old.Load == load && old.Setting == setting {
				r.Phases[i] = p
				return
			}
		}
		r.Phases = append(r.Phases, p)
	})
	return p
}

// controlledWindows is how many windows are measured for the goal.
const controlledWindows = 5

// reading is what both partitions have read and written at a time.
type reading struct {
	at        time.Time
	db, noise uint64
}

func (d sharedDisk) read(t *testing.T) reading {
	t.Helper()
	return reading{time.Now(), bytesOf(t, d.db), bytesOf(t, d.noise)}
}

// phase is what Prometheus and the disk say of the time between two readings.
func (s *site) phase(prometheus *kubetest.Prometheus, disk sharedDisk, begin, end reading) node.Phase {
	s.t.Helper()
	seconds := end.at.Sub(begin.at).Seconds()
	window := fmt.Sprintf("[%dms]", int(1e3*seconds))
	query := func(expression string) float64 {
		s.t.Helper()
		value, err := prometheus.Query(expression, end.at)
		if err != nil {
			s.t.Error(err)
		}
		return value
	}
	bytes := func(pods string) string {
		var sums []string
		for _, kind := range []string{"charged_read", "charged_write", "journal", "metadata", "uncharged"} {
			sums = append(sums, fmt.Sprintf("sum(increase(daybook_%s_bytes_total{device=%q,container=~%q}%s))", kind, disk.Device.Name, pods, window))
		}
		return "(" + strings.Join(sums, " + ") + ")"
	}
	const ofDatabase, ofBoth = "shop/db-0(/.*)?", "shop/(db-0|noise-[^/]*)(/.*)?"
	waits := func(what string) string {
		return fmt.Sprintf("increase(daybook_wait_duration_seconds_%s{container=~%q,operation=~\"f(data)?sync\"}%s)", what, ofDatabase, window)
	}
	db, noise := float64(end.db-begin.db), float64(end.noise-begin.noise)
	return node.Phase{
		Seconds:         seconds,
		Share:           query(bytes(ofDatabase) + " / " + bytes(ofBoth)),
		DiskShare:       db / (db + noise),
		SyncsPerSecond:  query("sum("+waits("count")+")") / seconds,
		MeanSyncSeconds: query("sum(" + waits("sum") + ") / sum(" + waits("count") + ")"),
		P99SyncSeconds:  query("histogram_quantile(0.99, sum by (le) (" + waits("bucket") + "))"),
		BytesPerSecond:  (db + noise) / seconds,
	}
}

// transactions are those that the database's clients count, of each second of a time.
func (s *site) transactions(begin, end time.Time) (perSecond []float64) {
	s.t.Helper()
	files, _ := filepath.Glob("/var/log/pods/shop_db-0_*/clients/*.log")
	for _, file := range files {
		text, err := os.ReadFile(file)
		s.do(err)
		for line := range strings.Lines(string(text)) {
			// TIME stdout F [ 7s ] thds: 8 tps: 81.00 qps: ...
			when, said, _ := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339Nano, when)
			_, rate, ok := strings.Cut(said, " tps: ")
			if err != nil || !ok || at.Before(begin) || at.After(end) {
				continue
			}
			rate, _, _ = strings.Cut(rate, " ")
			transactions, err := strconv.ParseFloat(rate, 64)
			s.do(err)
			perSecond = append(perSecond, transactions)
		}
	}
	return perSecond
}

// agentLog is the end of what agents have logged.
func (s *site) agentLog() string {
	files, _ := filepath.Glob("/var/log/pods/daybook_daybook-agent-*/agent/*.log")
	var text strings.Builder
	for _, file := range files {
		content, _ := os.ReadFile(file)
		fmt.Fprintf(&text, "--- %s\n%s\n", file, content[max(0, len(content)-4000):])
	}
	return text.String()
}

// configured changes the agent's configuration to a setting.
func configured(setting node.Setting, disk sharedDisk) func(string) string {
	return func(config string) string {
		config = strings.TrimSuffix(config, "\n") + "\nwaits: true\n"
		switch setting {
		case node.Observed, node.Alone:
			config = strings.Replace(config, "placement: pod\n", "placement: "+PlaceNone+"\n", 1)
		case node.Controlled:
			config += fmt.Sprintf("control: {devices: [%s], containers: [{match: shop/db-0, weight: %d}, {match: 'shop/noise-*', weight: %d}]}\n", disk.Device.Name, databaseWeight, noiseWeight)
		}
		return config
	}
}

// awaitRunning waits until a pod is ready.
func (s *site) awaitRunning(namespace, name string) {
	s.t.Helper()
	s.Await(namespace+"/"+name+" runs", func() bool { return s.cgroupOf(namespace, name) != "" })
}

// exists says whether a pod has a process of a program.
func (s *site) exists(namespace, name, program string) bool {
	processes, err := s.tree.ProcessesBelow(s.cgroupOf(namespace, name))
	if err != nil {
		return false
	}
	for _, pid := range processes {
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == program {
			return true
		}
	}
	return false
}

// setAgent gives the agent another configuration.
func (s *site) setAgent(change func(string) string) {
	s.t.Helper()
	const at = "/api/v1/namespaces/daybook/configmaps/daybook-agent"
	object, err := s.API.Get(at)
	s.do(err)
	if s.config == "" {
		s.t.Fatal("the agent was not deployed")
	}
	if config := change(s.config); config != kubetest.Text(object, "data", configKey) {
		s.do(s.API.Patch(at, kubetest.Object{"data": kubetest.Object{configKey: config}}))
	}
	old := s.agentPod()
	uid := kubetest.Text(old, "metadata", "uid")
	if uid == "" {
		s.t.Fatal("the agent does not run")
	}
	// The kubelet watches ConfigMaps; it has the new one before it starts the next pod.
	time.Sleep(2 * time.Second)
	s.do(s.API.Delete("/api/v1/namespaces/daybook/pods/" + kubetest.Text(old, "metadata", "name")))
	s.Await("the next agent runs", func() bool {
		next := kubetest.Text(s.agentPod(), "metadata", "uid")
		return next != "" && next != uid
	})
}

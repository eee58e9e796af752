package figure

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// mix is the I/O of one container in a synthetic phase.
type mix struct {
	cgroup, name string
	share        float64 // mean, of the disk
	target       float64
	// journal, metadata and uncharged are parts of its own bytes.
	journal, metadata, uncharged float64
	weight                       func(k int) uint64
}

// synthesize makes a phase of samples in which the shares vary by swing.
func synthesize(name string, intervals int, seconds, bytesPerSecond, swing float64, mixes []mix) Phase {
	random := rand.New(rand.NewPCG(1, uint64(len(name))))
	phase := Phase{Name: name}
	wander := 0.0
	for k := range intervals {
		wander = 0.55*wander + swing*random.NormFloat64()
		total := bytesPerSecond * seconds * (1 + 0.03*random.NormFloat64())
		device := account.Device{Device: "loop0", Dev: "7:0", Transactions: 1}
		for i, m := range mixes {
			share := m.share - wander/float64(max(1, len(mixes)-1))
			if i == len(mixes)-1 {
				share = m.share + wander
			}
			bytes := total * math.Max(0.01, share)
			c := account.Container{
				Cgroup: m.cgroup, Name: m.name, TargetShare: m.target,
				JournalBytes:   uint64(bytes * m.journal),
				MetadataBytes:  uint64(bytes * m.metadata),
				UnchargedBytes: uint64(bytes * m.uncharged),
			}
			c.ChargedReadBytes = uint64(bytes) - c.Hidden()
			if m.weight != nil {
				c.Weight = m.weight(k)
			}
			device.DiskBytes += c.Bytes()
			device.JournalBytes += c.JournalBytes
			device.MetadataBytes += c.MetadataBytes
			device.Containers = append(device.Containers, c)
		}
		root := account.Container{Cgroup: account.RootCgroup, Name: "/", ChargedWriteBytes: 40_000, ReturnedBytes: device.JournalBytes}
		device.DiskBytes += root.Bytes() + 4096
		device.UnaccountedBytes = 4096
		device.Containers = append(device.Containers, root)
		phase.Samples = append(phase.Samples, account.Sample{
			Time:            time.Date(2020, 1, 1, 0, 0, k, 0, time.UTC),
			IntervalSeconds: seconds, Estimator: "handles",
			Devices: []account.Device{device},
		})
	}
	return phase
}

// paperRun resembles the experiment of paper 1: 36 to 64 uncontrolled, then 50
// to 50 with its law, which oscillates, and with a damped one.
func paperRun() Shares {
	two := func(a float64, weightA, weightB func(int) uint64) []mix {
		return []mix{
			{"/daybook-a", "A", a, 0.5, 0, 0, 0, weightA},
			{"/daybook-b", "B", 1 - a, 0.5, 0.22, 0.11, 0.02, weightB},
		}
	}
	still := func(w uint64) func(int) uint64 { return func(int) uint64 { return w } }
	swing := func(base, amp float64) func(int) uint64 {
		return func(k int) uint64 { return uint64(base + amp*math.Sin(float64(k)*1.9)) }
	}
	decay := func(from, to float64) func(int) uint64 {
		return func(k int) uint64 { return uint64(to + (from-to)*math.Exp(-float64(k)/2.5)) }
	}
	return Shares{
		Device:     "loop0",
		Containers: []Container{{Cgroup: "/daybook-a"}, {Cgroup: "/daybook-b"}},
		Phases: []Phase{
			synthesize("uncontrolled", 12, 5, 39e6, 0.015, two(0.361, still(500), still(500))),
			synthesize("paper's law", 12, 5, 38.6e6, 0.05, two(0.499, swing(620, 90), swing(300, 80))),
			synthesize("feedback law", 12, 5, 38.9e6, 0.012, two(0.5, decay(500, 640), decay(500, 270))),
		},
	}
}

// crowd has n containers with long names and different targets.
func crowd(n, phases int) Shares {
	s := Shares{Device: "nvme0n1"}
	names := []string{"postgres-main", "k8s_etcd_etcd-control-plane_kube-system", "mysql", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "redis", "web", "backup-nightly-full", "log"}
	var mixes []mix
	var sum float64
	for i := range n {
		sum += float64(n - i)
	}
	for i := range n {
		m := mix{cgroup: "/x/" + names[i], name: names[i], target: float64(n-i) / sum, share: float64(n-i) / sum, weight: func(int) uint64 { return uint64(100 * (n - i)) }}
		if i%2 == 1 {
			m.journal, m.metadata, m.uncharged = 0.3, 0.12, 0.2
		}
		mixes = append(mixes, m)
		s.Containers = append(s.Containers, Container{Cgroup: m.cgroup})
	}
	for p := range phases {
		phase := synthesize([]string{"uncontrolled, no fsync", "paper's law, one fsync a second", "feedback law", "limits"}[p%4], 60, 1, 120e6, 0.03/float64(p+1), mixes)
		for k := range phase.Samples {
			phase.Samples[k].Devices[0].Device = "nvme0n1"
		}
		s.Phases = append(s.Phases, phase)
	}
	return s
}

func accuracyRun() Accuracy {
	return Accuracy{
		Note:  "ext4 with an external journal device, 1000 calls each",
		Limit: 0.01,
		Rows: []AccuracyRow{
			{"mkdir", 0.0002, 0.011}, {"creat", -0.0011, 0.045}, {"mknod", 0.0008, -0.04},
			{"truncate", 0, -0.01}, {"unlink", 0.0031, 0.003}, {"write", 0.0004, 0.0},
			{"rmdir", -0.0007, -0.013}, {"rename", 0.0012, 0.27}, {"link", 0.0005, -0.31},
			{"symlink", -0.0009, 0.12}, {"chmod", 0.0016, -1}, {"setxattr", 0.0024, -0.62},
			{"fallocate", 0.0052, -1}, {"large truncate", -0.0085, -0.97}, {"append + fsync", 0.0013, 3.4},
			{"untar", 0.0061, 0.83}, {"buffered writes without fsync", 0.0125, 17.2},
			{"8 containers, mixed", 0.0033, math.NaN()},
		},
	}
}

func overheadRun() Overhead {
	return Overhead{
		Note:  "20 alternating runs of 5 s each",
		Range: "95 % range", Limit: 0.99,
		Rows: []OverheadRow{
			{"mkdir", 0.9962, 0.9917, 1.0011},
			{"creat + unlink", 0.9981, 0.9922, 1.0043},
			{"4 KiB append + fsync", 1.0004, 0.9871, 1.0139},
		},
	}
}

func reportRun() Report {
	accuracy, err := accuracyRun().SVG()
	if err != nil {
		panic(err)
	}
	return Report{
		Title:   "The journal, charged to its container",
		Lead:    "Containers A and B have equal weights on a disk. A reads; B reads and makes directories.",
		Shares:  paperRun(),
		Figures: []Figure{{Title: "Accuracy", Text: "Against an external journal.", SVG: accuracy}},
		Made: []Fact{
			{"command", "make bench-shares"}, {"kernel", "Linux 6.18"},
			{"disk", "HDD model: 40 MB/s, full stroke 8 ms"}, {"scheduler", "bfq, low_latency=0"},
		},
	}
}

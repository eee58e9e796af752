package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	volumeLabels = []string{"namespace", "pod", "volume", "device", "placement"}

	placedDesc = prometheus.NewDesc("daybook_agent_volume_placed",
		"1 if the journal's thread of the volume is in its cgroup, else 0; one series for each name of a pod of the volume.", volumeLabels, nil)
	writtenDesc = prometheus.NewDesc("daybook_agent_volume_journal_write_bytes_total",
		"Bytes written that the kernel charged to the journal's cgroup; absent where it has no I/O controller of its own.", volumeLabels, nil)
	weightDesc = prometheus.NewDesc("daybook_agent_volume_weight",
		"Weight of the cgroup that the journal is under, on the disk of the volume; 0 where there is none.", volumeLabels, nil)
	containerDesc = prometheus.NewDesc("daybook_agent_container_info",
		"Always 1; the labels name the container of a pod, or without container_name the pod's own cgroup. container is that of the other metrics of daybook.",
		[]string{"container", "namespace", "pod", "pod_uid", "container_name"}, nil)
	attributingDesc = prometheus.NewDesc("daybook_agent_attributing",
		"1 if I/O is attributed to containers; 0 if account is false, or the kernel lacks what it needs: the log says what.", nil, nil)
	roundsDesc   = prometheus.NewDesc("daybook_agent_rounds_total", "Rounds of the agent.", nil, nil)
	failuresDesc = prometheus.NewDesc("daybook_agent_failures_total", "Errors in rounds; the log has each.", nil, nil)
	releasesDesc = prometheus.NewDesc("daybook_agent_releases_total", "Journals that were released because no pod uses the volume.", nil, nil)
	listingsDesc = prometheus.NewDesc("daybook_agent_listings_total", "Times that the container runtime listed its pods and containers for the agent.", nil, nil)
	roundDesc    = prometheus.NewDesc("daybook_agent_last_round_timestamp_seconds", "When the last round ended, in Unix time; until the first one, when the agent started.", nil, nil)
)

// Describe implements prometheus.Collector.
func (a *Agent) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{placedDesc, writtenDesc, weightDesc, containerDesc, attributingDesc, roundsDesc, failuresDesc, releasesDesc, listingsDesc, roundDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (a *Agent) Collect(out chan<- prometheus.Metric) {
	report := a.Report()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
		}
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, v := range report.Volumes {
		placement := PlacePod
		if v.Placement.Neutral {
			placement = PlaceNeutral
		}
		series := map[[2]string]bool{}
		for _, pod := range v.Placement.Pods {
			// Without a name, each pod still has series of its own. Two of one name share them, as
			// when one was deleted by force and still runs: equal labels fail the whole scrape.
			named := [2]string{pod.Namespace, cmp.Or(pod.Name, pod.UID)}
			if series[named] {
				continue
			}
			series[named] = true
			labels := []string{named[0], named[1], v.Placement.Volume.Name, v.Device, placement}
			placed := 0.0
			if v.Status.Placed {
				placed = 1
			}
			send(placedDesc, prometheus.GaugeValue, placed, labels...)
			send(weightDesc, prometheus.GaugeValue, float64(v.Status.Weight), labels...)
			if v.Status.JournalWriteBytes > 0 {
				send(writtenDesc, prometheus.CounterValue, float64(v.Status.JournalWriteBytes), labels...)
			}
		}
	}
	seen := map[string]bool{}
	pods, containers := a.names.All()
	for _, names := range []map[string]Named{pods, containers} {
		for _, n := range names {
			key := n.Name() + " " + n.PodUID
			if !seen[key] {
				seen[key] = true
				send(containerDesc, prometheus.GaugeValue, 1, n.Name(), n.Namespace, n.Pod, n.PodUID, n.Container)
			}
		}
	}
	attributing := 0.0
	if a.attributing.Load() {
		attributing = 1
	}
	send(attributingDesc, prometheus.GaugeValue, attributing)
	send(roundsDesc, prometheus.CounterValue, float64(report.Rounds))
	send(failuresDesc, prometheus.CounterValue, float64(report.Failures))
	send(releasesDesc, prometheus.CounterValue, float64(report.Releases))
	send(listingsDesc, prometheus.CounterValue, float64(report.Listings))
	send(roundDesc, prometheus.GaugeValue, float64(a.progressed(report).UnixNano())/1e9)
}

// SetAttributing says whether I/O is attributed to containers, for the metrics.
func (a *Agent) SetAttributing(attributing bool) { a.attributing.Store(attributing) }

// healthyRounds is how many rounds may be missing before the agent is not healthy.
const healthyRounds = 30

// startPatience is the time of the first round.
const startPatience = 30 * time.Second

// progressed is when the last round ended; until the first one, when the agent was made.
func (a *Agent) progressed(report Report) time.Time {
	if report.Rounds == 0 {
		return a.made
	}
	return report.Time
}

// Healthy says whether rounds end.
func (a *Agent) Healthy() error {
	report := a.lastRound()
	limit := startPatience + healthyRounds*a.config.Interval
	if age := time.Since(a.progressed(report)); age > limit {
		return fmt.Errorf("no round for %.0f s; at most %.0f s are expected", age.Seconds(), limit.Seconds())
	}
	return nil
}

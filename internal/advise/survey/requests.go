package survey

import (
	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/disktime"
)

// ShareOf is the part of a disk that a cgroup has by its weight, among all in the sample that
// had I/O; 0: not known.
func ShareOf(device account.Device, cgroup string) float64 {
	var own, all float64
	for _, c := range device.Containers {
		if c.Cgroup == cgroup {
			own = c.TargetShare
		}
		if c.Cgroup == cgroup || c.Bytes() > 0 {
			all += c.TargetShare
		}
	}
	if own <= 0 {
		return 0
	}
	return own / all
}

// Count adds requests to what a container's input has; own: they are the container's.
func Count(in *advise.Input, class disktime.Class, own bool, sums disktime.Sums) {
	r := advise.Requests{
		Count:         sums.Requests,
		QueuedSeconds: float64(sums.QueuedNanoseconds) / 1e9,
		ServedSeconds: float64(sums.ServedNanoseconds) / 1e9,
		AloneSeconds:  float64(sums.AloneNanoseconds) / 1e9,
	}
	switch {
	case class == disktime.Flush:
		in.Flushes = in.Flushes.Add(r)
	case class == disktime.Metadata:
		in.Metadata = in.Metadata.Add(r)
	case !own:
		in.Others = in.Others.Add(r)
	case class == disktime.Data:
		in.Own = in.Own.Add(r)
	}
}

// CountMoves adds moves to what a container's input has; own and ownBefore: the requests,
// and those before them, are the container's.
func CountMoves(in *advise.Input, class disktime.Class, own bool, classBefore disktime.Class, ownBefore bool, sums disktime.Moves) {
	m := advise.Moves{
		Requests: sums.Requests, Roots: float64(sums.Roots), Sectors: float64(sums.Sectors),
		AloneSeconds: float64(sums.AloneMicroseconds) / 1e6, Products: float64(sums.Products) / 1e6,
	}
	in.Moves = in.Moves.Add(m)
	if !inVolume(class, own) {
		return
	}
	in.OwnMoves = in.OwnMoves.Add(m)
	if inVolume(classBefore, ownBefore) {
		in.Near = in.Near.Add(m)
	}
	if class == disktime.Metadata && classBefore == disktime.Metadata {
		in.Journal = in.Journal.Add(m)
	}
}

// inVolume reports whether requests would go to a volume of the container.
func inVolume(class disktime.Class, own bool) bool {
	return class == disktime.Metadata || own
}

package top

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/control/law"
)

// Proposal is the set of weights that a law would set after one interval of one
// disk.
type Proposal struct {
	Time       time.Time           `json:"time"`
	Device     string              `json:"device"`
	Law        string              `json:"law"`
	Containers []ContainerProposal `json:"containers"`
}

// ContainerProposal is one container's line of a [Proposal].
type ContainerProposal struct {
	Cgroup      string  `json:"cgroup"`
	Name        string  `json:"name"`
	Share       float64 `json:"share"`
	TargetShare float64 `json:"target_share"`
	// Weight was in force in the interval. LawWeight is the law's answer to it,
	// in the range of BFQ's weight files, 1..1000.
	Weight    uint64 `json:"weight"`
	LawWeight uint64 `json:"law_weight"`
}

// WhatIf computes, sample by sample, what a law would set. The law sees the
// recorded weights, so each answer is to the real state. It does not simulate
// the effect of the answers.
type WhatIf struct {
	name string
	// laws are stored by disk and parent cgroup, because weights are compared
	// among siblings only.
	laws map[[2]string]law.Law
}

// NewWhatIf makes one for the law of that name, of package law.
func NewWhatIf(name string) (*WhatIf, error) {
	if _, err := law.NewLaw(name, law.BFQRange); err != nil {
		return nil, err
	}
	return &WhatIf{name: name, laws: map[[2]string]law.Law{}}, nil
}

// Next answers one sample: a proposal for each disk that has siblings with
// weights and targets. A container without siblings is skipped.
func (w *WhatIf) Next(s account.Sample) ([]Proposal, error) {
	var proposals []Proposal
	for _, d := range s.Devices {
		groups := map[string][]account.Container{}
		var parents []string
		for _, c := range d.Containers {
			if c.Cgroup == account.RootCgroup || c.TargetShare <= 0 || c.Weight == 0 {
				continue
			}
			parent := path.Dir(c.Cgroup)
			if groups[parent] == nil {
				parents = append(parents, parent)
			}
			groups[parent] = append(groups[parent], c)
		}
		slices.Sort(parents)
		proposal := Proposal{Time: s.Time, Device: d.Device, Law: w.name}
		for _, parent := range parents {
			if len(groups[parent]) < 2 {
				continue
			}
			siblings, err := w.siblings([2]string{d.Device, parent}, s.IntervalSeconds, groups[parent])
			if err != nil {
				return nil, err
			}
			proposal.Containers = append(proposal.Containers, siblings...)
		}
		if len(proposal.Containers) > 0 {
			proposals = append(proposals, proposal)
		}
	}
	return proposals, nil
}

func (w *WhatIf) siblings(key [2]string, seconds float64, containers []account.Container) ([]ContainerProposal, error) {
	siblings := w.laws[key]
	if siblings == nil {
		var err error
		if siblings, err = law.NewLaw(w.name, law.BFQRange); err != nil {
			return nil, err
		}
		w.laws[key] = siblings
	}
	slices.SortFunc(containers, func(a, b account.Container) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	// A sample has the ratio of the ideal weights, but not the weights. The
	// laws keep the sum of the weights, so it is the sum of those in force.
	var targets, sum float64
	for _, c := range containers {
		targets += c.TargetShare
		sum += float64(c.Weight)
	}
	observations := make([]law.Observation, len(containers))
	ids := make([]string, len(containers))
	for i, c := range containers {
		ids[i] = c.Cgroup
		observations[i] = law.Observation{
			ID: c.Cgroup, Ideal: c.TargetShare / targets * sum, Weight: float64(c.Weight),
			JournalBytes: float64(c.Hidden()), WritebackBytes: float64(c.MetadataBytes + c.UnchargedBytes), OtherBytes: float64(c.Charged()),
		}
	}
	weights := law.Quantize(siblings.Next(seconds, observations), ids, law.BFQRange)
	result := make([]ContainerProposal, len(containers))
	for i, c := range containers {
		result[i] = ContainerProposal{Cgroup: c.Cgroup, Name: c.Name, Share: c.Share, TargetShare: c.TargetShare, Weight: c.Weight, LawWeight: weights[i]}
	}
	return result, nil
}

// WriteProposal writes a proposal as a line of JSON, or as a line of text for
// each container.
func WriteProposal(w io.Writer, p Proposal, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("cannot write a proposal as JSON: %w", err)
		}
		_, err = w.Write(append(account.AppendPrintable(nil, line), '\n'))
		return err
	}
	out := bufio.NewWriter(w)
	for _, c := range p.Containers {
		name := displayName(account.Container{Cgroup: c.Cgroup, Name: c.Name})
		fmt.Fprintf(out, "%s %-10s %6s %6s %6d -> %-6d %s\n", p.Time.Format("15:04:05"), Safe(p.Device),
			percent(c.Share), percent(c.TargetShare), c.Weight, c.LawWeight, name)
	}
	return out.Flush()
}

// ProposalHeading is above the lines of text of [WriteProposal].
const ProposalHeading = "TIME     DISK        SHARE TARGET WEIGHT    LAW    CONTAINER"

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/kube"
)

// NamespaceLabel with the value NamespaceAllowed lets the pods of a namespace use
// [Annotation].
const (
	NamespaceLabel   = Annotation
	NamespaceAllowed = "allowed"
)

// Choices are what the API server says about weights. The zero value is that of an agent
// that asks none.
type Choices struct {
	// Namespaces have the label.
	Namespaces map[string]bool
	// Volumes have the weight of the class of each known PersistentVolume, by its name; 0:
	// its classes have none.
	Volumes map[string]uint64
	// Problems are wrong annotations of classes.
	Problems []string
}

// The API server is asked every askInterval, and earlier for new volumes alone, but not more
// often than every askPause.
const (
	askInterval = 10 * time.Second
	askPause    = time.Second
)

// source is an API server; tests have another one.
type source interface {
	Namespaces(ctx context.Context, label, value string) ([]string, error)
	Volume(ctx context.Context, name string) (kube.Classes, bool, error)
	StorageClass(ctx context.Context, name string) (map[string]string, error)
	AttributesClass(ctx context.Context, name string) (map[string]string, error)
}

// ask asks for all that matters to these PersistentVolumes. With an error the choices are
// not to be used.
func ask(ctx context.Context, from source, volumes []string) (Choices, error) {
	c := Choices{Namespaces: map[string]bool{}, Volumes: map[string]uint64{}}
	names, err := from.Namespaces(ctx, NamespaceLabel, NamespaceAllowed)
	if err != nil {
		return Choices{}, err
	}
	for _, name := range names {
		c.Namespaces[name] = true
	}
	weights := map[string]uint64{} // of classes
	problems := map[string]bool{}
	of := func(kind, name string, read func(context.Context, string) (map[string]string, error)) (uint64, error) {
		key := kind + " " + name
		if weight, known := weights[key]; known || name == "" {
			return weight, nil
		}
		annotations, err := read(ctx, name)
		if err != nil {
			return 0, err
		}
		if text, annotated := annotations[Annotation]; annotated {
			if weights[key], err = parseWeight(text); err != nil {
				problems[fmt.Sprintf("%s: %v", key, err)] = true
			}
		} else {
			weights[key] = 0
		}
		return weights[key], nil
	}
	for _, volume := range volumes {
		classes, _, err := from.Volume(ctx, volume)
		if err != nil {
			return Choices{}, err
		}
		weight, err := of("VolumeAttributesClass", classes.Attributes, from.AttributesClass)
		if err == nil && weight == 0 {
			weight, err = of("StorageClass", classes.Storage, from.StorageClass)
		}
		if err != nil {
			return Choices{}, err
		}
		c.Volumes[volume] = weight
	}
	c.Problems = slices.Sorted(maps.Keys(problems))
	return c, nil
}

// parseWeight reads the value of [Annotation].
func parseWeight(text string) (uint64, error) {
	weight, err := strconv.ParseUint(text, 10, 64)
	if err != nil || weight < 1 || weight > adopt.MaxWeight {
		return 0, fmt.Errorf("annotation %s is %.20q: want a whole number from 1 to %d", Annotation, text, adopt.MaxWeight)
	}
	return weight, nil
}

// with adds what was asked later for further volumes.
func (c Choices) with(later Choices) Choices {
	volumes := maps.Clone(later.Volumes)
	maps.Copy(volumes, c.Volumes)
	problems := append(slices.Clone(c.Problems), later.Problems...)
	slices.Sort(problems)
	return Choices{Namespaces: later.Namespaces, Volumes: volumes, Problems: slices.Compact(problems)}
}

// asker keeps the choices of an agent.
type asker struct {
	from source
	wake chan struct{}
	// volumes are those of the last round. The agent's mutex protects them.
	volumes []string
}

// current are the last choices, and why they could not be read anew. It asks soon for
// volumes that are not known yet.
func (a *Agent) current(volumes []Volume) (Choices, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asker.from == nil {
		return a.choices, a.choicesErr
	}
	a.asker.volumes = namesOf(volumes)
	if len(a.unknown()) > 0 {
		select {
		case a.asker.wake <- struct{}{}:
		default:
		}
	}
	return a.choices, a.choicesErr
}

func namesOf(volumes []Volume) (names []string) {
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unknown are the volumes of which nothing is known. The caller has the mutex.
func (a *Agent) unknown() (names []string) {
	for _, name := range a.asker.volumes {
		if _, known := a.choices.Volumes[name]; !known {
			names = append(names, name)
		}
	}
	return names
}

// firstAnswer bounds the time for which the first round waits for the API server's answers, of
// which there are several for each volume.
var firstAnswer = askInterval

// askFirst asks before the first round.
func (a *Agent) askFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	mounts, err := blockdev.MountsOfHost()
	a.mu.Lock()
	a.asker.volumes, a.choicesErr = namesOf(volumesOf(mounts, a.kubeletDirs...)), err
	a.mu.Unlock()
	a.askOnce(ctx, true)
}

// askOnce asks the API server for all volumes, or for those alone that are not known: where pods
// come and go there is a new one all the time. When it does not answer, what it said before stays
// in force.
func (a *Agent) askOnce(ctx context.Context, all bool) {
	a.mu.Lock()
	before, names := a.choices, a.asker.volumes
	if !all {
		names = a.unknown()
	}
	a.mu.Unlock()
	if !all && len(names) == 0 {
		return // known meanwhile
	}
	known, err := ask(ctx, a.asker.from, names)
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		return
	}
	if a.choicesErr = err; err != nil {
		return
	}
	if !all {
		known = before.with(known)
	}
	a.choices = known
}

// keepAsking asks until ctx ends, and asks for all volumes from time to time: their classes change.
func (a *Agent) keepAsking(ctx context.Context) {
	for askedAll := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-a.asker.wake:
		case <-time.After(time.Until(askedAll.Add(askInterval))):
		}
		all := time.Since(askedAll) >= askInterval
		if all {
			askedAll = time.Now()
		}
		a.askOnce(ctx, all)
		select {
		case <-ctx.Done():
			return
		case <-time.After(askPause):
		}
	}
}

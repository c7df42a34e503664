package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tuning overrides the settings of a rival, written after its name: rueidis:multiplex=1:flush-us=20.
type tuning map[string]int

// tunables are the settings of each rival.
var tunables = map[string][]string{
	"memcached":   {"threads", "idle"},
	"go-redis":    {"io-threads", "pool"},
	"rueidis":     {"io-threads", "multiplex", "ring", "flush-us", "pool"},
	"grpc+pebble": {"connections"},
}

// or returns a setting, or the default.
func (t tuning) or(name string, otherwise int) int {
	if n, ok := t[name]; ok {
		return n
	}
	return otherwise
}

// newStore returns a store by its name and settings.
func newStore(r *rig, name string) (store, error) {
	base, settings, tuned := strings.Cut(name, ":")
	if stores[base] == nil {
		return nil, fmt.Errorf("-stores: there is no %q; there are %s", base, storeNames())
	}
	t := tuning{}
	for tuned {
		var one string
		one, settings, tuned = strings.Cut(settings, ":")
		key, text, _ := strings.Cut(one, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || !slices.Contains(tunables[base], key) {
			return nil, fmt.Errorf("-stores %s: want NAME=NUMBER of %s, has %q", name, strings.Join(tunables[base], ", "), one)
		}
		t[key] = n
	}
	return stores[base](r, t), nil
}

// tunableNames lists the settings.
func tunableNames() string {
	var all []string
	for name, settings := range tunables {
		all = append(all, name+" has "+strings.Join(settings, ", "))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"docstore/bench/internal/files"
)

// What a sample describes.
const (
	ofEntries   = "entries"
	ofDocuments = "documents"
)

// sample describes an index or a collection of one size.
type sample struct {
	Of     string             `json:"of"`
	Size   int                `json:"size"`
	Values map[string]float64 `json:"values"` // by column
}

// samples are those of a file to which later ones are added.
type samples struct {
	file string // empty: none
	all  []sample
}

func readSamples(file string) (*samples, error) {
	s := &samples{file: file}
	if file == "" {
		return s, nil
	}
	err := files.Lines(file, func(line []byte) error {
		var one sample
		if err := json.Unmarshal(line, &one); err != nil {
			return err
		}
		s.all = append(s.all, one)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

func (s *samples) add(one sample) error {
	fmt.Printf("%d %s:", one.Size, one.Of)
	for _, column := range slices.Sorted(maps.Keys(one.Values)) {
		fmt.Printf(" %s %.4g,", column, one.Values[column])
	}
	fmt.Println()
	s.all = append(s.all, one)
	if s.file == "" {
		return nil
	}
	file, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(one), file.Close())
}

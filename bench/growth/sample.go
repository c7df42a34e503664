package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

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
	Values map[string]float64 `json:"values"` // by the titles of columns
}

// column is a value of a sample as it is printed.
type column struct {
	title  string
	digits int // after the point
}

// printHead prints the head of a table.
func printHead(of string, columns []column) {
	fmt.Printf("\n| %s |", of)
	for _, c := range columns {
		fmt.Printf(" %s |", c.title)
	}
	fmt.Printf("\n%s|\n", strings.Repeat("|---", 1+len(columns)))
}

// row returns a line of the table; a value that was not measured is "-".
func (s sample) row(columns []column) string {
	cells := []string{strconv.Itoa(s.Size)}
	for _, c := range columns {
		cell := "-"
		if value, ok := s.Values[c.title]; ok {
			cell = strconv.FormatFloat(value, 'f', c.digits, 64)
		}
		cells = append(cells, cell)
	}
	return "| " + strings.Join(cells, " | ") + " |"
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

func (s *samples) add(one sample, columns []column) error {
	fmt.Println(one.row(columns))
	s.all = append(s.all, one)
	if s.file == "" {
		return nil
	}
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

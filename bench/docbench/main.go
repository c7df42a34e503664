// Docbench measures the main job: documents fetched by id from running daemons
// through one Boxcar pool, closed loop, every document compared with its line.
//
//	docserviced serve --collection debian=queue --data data &
//	go run ./docbench -servers 127.0.0.1:7070 -collection debian -callers 1,64 -batch 1,50 debian.ndjson.gz
//
// It prints a row for each number of callers, batch size and form in which the
// documents travel: as stored, for the client to decode, or as plain bytes, that
// the daemon decodes. The rounds of the forms take turns. With -http, the address
// of a daemon that alone is asked, it also prints the processor time that one
// takes for a document. The figures are those of the machine it runs on, which
// it shares with the daemons.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"docstore/boxcarrpc"
	"docstore/boxcarrpc/discovery"
	"docstore/docservice"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docbench:", err)
		os.Exit(1)
	}
}

// settings is what the flags say.
type settings struct {
	servers    []string
	collection string
	callers    []int
	batches    []int
	http       string // of the daemon whose processor time counts; "": none
	duration   time.Duration
	rounds     int
	file       string
}

func run(args []string) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	documents, err := readDocuments(s.file)
	if err != nil {
		return err
	}
	pool, err := boxcarrpc.NewPool(discovery.Static(s.servers...), &boxcarrpc.PoolOptions{
		Size:    slices.Max(s.callers),
		Methods: docservice.IdempotentMethods(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	stored := docservice.NewClient(pool, s.collection)
	forms := []struct {
		name   string
		client *docservice.Client
	}{{"stored", stored}, {"plain", stored.Plain()}}

	fmt.Printf("%-8s %-6s %-7s %12s %10s %10s %14s\n", "callers", "batch", "form", "documents/s", "p50", "p99", "daemon us/doc")
	for _, callers := range s.callers {
		for _, batch := range s.batches {
			results := make([][]result, len(forms))
			for range s.rounds {
				for i, form := range forms {
					r, err := s.measure(form.client, documents, callers, batch)
					if err != nil {
						return err
					}
					results[i] = append(results[i], r)
				}
			}
			for i, form := range forms {
				r := middle(results[i])
				fmt.Printf("%-8d %-6d %-7s %12.0f %10v %10v %14.2f\n", callers, batch, form.name, r.rate, r.p50, r.p99, r.daemon)
			}
		}
	}
	return nil
}

// middle is the round whose rate is the median, with the median of the daemon's
// time.
func middle(rounds []result) result {
	slices.SortFunc(rounds, func(a, b result) int { return cmp.Compare(a.daemon, b.daemon) })
	daemon := rounds[len(rounds)/2].daemon
	slices.SortFunc(rounds, func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
	r := rounds[len(rounds)/2]
	r.daemon = daemon
	return r
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("docbench", flag.ContinueOnError)
	servers := flags.String("servers", "127.0.0.1:7070", "Boxcar addresses, separated by commas")
	flags.StringVar(&s.collection, "collection", "debian", "name of the collection")
	callers := flags.String("callers", "1,64", "numbers of concurrent callers")
	batches := flags.String("batch", "1,50", "numbers of documents asked for at once")
	flags.StringVar(&s.http, "http", "", "HTTP address of the daemon, to tell its processor time")
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "length of one round")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds for each row; the median is printed")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() != 1 {
		return s, fmt.Errorf("want one NDJSON file, the one that was appended; got %d", flags.NArg())
	}
	if s.rounds < 1 {
		return s, fmt.Errorf("-rounds %d: want at least 1", s.rounds)
	}
	s.file = flags.Arg(0)
	s.servers = strings.Split(*servers, ",")
	if s.callers, err = numbers("-callers", *callers); err != nil {
		return s, err
	}
	s.batches, err = numbers("-batch", *batches)
	return s, err
}

func numbers(flagName, list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s %q: want numbers from 1, separated by commas", flagName, list)
		}
		all = append(all, n)
	}
	return all, nil
}

type document struct {
	id   string
	line []byte
}

// readDocuments reads NDJSON, gzipped or not.
func readDocuments(name string) ([]document, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var in io.Reader = bytes.NewReader(content)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var documents []document
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 17<<20)
	for lines.Scan() {
		var fields struct{ ID string }
		if err := json.Unmarshal(lines.Bytes(), &fields); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, len(documents)+1, err)
		}
		documents = append(documents, document{fields.ID, bytes.Clone(lines.Bytes())})
	}
	if len(documents) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("%s: no documents", name)
	}
	return documents, lines.Err()
}

// result is one round: documents per second, what a call took, and what of the
// daemon's processor time a document took, in microseconds.
type result struct {
	rate     float64
	p50, p99 time.Duration
	daemon   float64
}

// measure fetches random documents with so many callers.
func (s *settings) measure(client *docservice.Client, documents []document, callers, batch int) (result, error) {
	before, err := s.daemonSeconds()
	if err != nil {
		return result{}, err
	}
	latencies := make([][]time.Duration, callers)
	failures := make([]error, callers)
	started := time.Now()
	deadline := started.Add(s.duration)
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			c := caller{client: client, documents: documents, random: rand.New(rand.NewPCG(uint64(i), 1))}
			latencies[i], failures[i] = c.fetchUntil(deadline, batch)
		})
	}
	running.Wait()
	elapsed := time.Since(started)
	for _, err := range failures {
		if err != nil {
			return result{}, err
		}
	}
	after, err := s.daemonSeconds()
	if err != nil {
		return result{}, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return result{
		rate:   float64(len(all)*batch) / elapsed.Seconds(),
		p50:    all[len(all)/2].Round(time.Microsecond),
		p99:    all[len(all)*99/100].Round(time.Microsecond),
		daemon: (after - before) * 1e6 / float64(len(all)*batch),
	}, nil
}

// daemonSeconds is the processor time that the daemon has taken so far.
func (s *settings) daemonSeconds() (float64, error) {
	if s.http == "" {
		return 0, nil
	}
	response, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "process_cpu_seconds_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("http://%s/metrics does not tell process_cpu_seconds_total", s.http)
}

// caller is one front end's thread.
type caller struct {
	client    *docservice.Client
	documents []document
	random    *rand.Rand
	buffer    []byte
	asked     []int
	ids       []string
}

func (c *caller) fetchUntil(deadline time.Time, batch int) ([]time.Duration, error) {
	var latencies []time.Duration
	for {
		started := time.Now()
		if started.After(deadline) && len(latencies) > 0 {
			return latencies, nil
		}
		c.asked, c.ids = c.asked[:0], c.ids[:0]
		for range batch {
			n := c.random.IntN(len(c.documents))
			c.asked, c.ids = append(c.asked, n), append(c.ids, c.documents[n].id)
		}
		if err := c.fetch(); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(started))
	}
}

func (c *caller) fetch() error {
	ctx := context.Background()
	if len(c.ids) == 1 {
		got, err := c.client.Get(ctx, c.buffer[:0], c.ids[0])
		c.buffer = got
		return c.compare(0, got, err)
	}
	return c.client.GetMany(ctx, c.ids, c.compare)
}

func (c *caller) compare(i int, got []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", c.ids[i], err)
	}
	if !bytes.Equal(got, c.documents[c.asked[i]].line) {
		return fmt.Errorf("%s: got other bytes than its line", c.ids[i])
	}
	return nil
}

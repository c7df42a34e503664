// Dashboard draws the panels of deploy/grafana/docstore.json from the data of a Prometheus server as
// one picture, and prints the titles of those without data.
//
//	go run ./dashboard -prometheus http://127.0.0.1:9090 -since 2h -picture ../docs/images/dashboard.png
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"docstore/bench/internal/command"
	"docstore/bench/internal/picture"
)

func main() {
	command.Main(func(args []string) error {
		flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
		file := flags.String("dashboard", "../deploy/grafana/docstore.json", "file of the dashboard")
		server := flags.String("prometheus", "", "URL of the Prometheus server")
		since := flags.Duration("since", time.Hour, "duration to draw, until now")
		to := flags.String("picture", "", "PNG file to write")
		if err := command.Parse(flags, args); err != nil {
			return err
		}
		panels, err := read(*file)
		if err != nil {
			return err
		}
		return draw(*to, panels, &source{*server, time.Now().Add(-*since), time.Now()})
	})
}

// panel is a panel of a dashboard of Grafana.
type panel struct {
	Title       string `json:"title"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// read returns the panels with queries, in their order.
func read(file string) (panels []panel, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) > 0 {
			panels = append(panels, p)
		}
	}
	return panels, nil
}

// source is the data of a Prometheus server between two times.
type source struct {
	url      string
	from, to time.Time
}

// points is the number of steps of a query.
const points = 300

// variables are those of the dashboard, with "All" selected.
var variables = strings.NewReplacer("$instance", ".*", "$collection", ".*", "$__rate_interval", "1m")

// label matches a label in the legend of a query.
var label = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// query adds the series of a query by their legends, with minutes as X.
func (s *source) query(expr, legend string, to picture.Series) error {
	step := s.to.Sub(s.from).Seconds() / points
	response, err := http.Get(s.url + "/api/v1/query_range?" + url.Values{
		"query": {variables.Replace(expr)}, "step": {fmt.Sprint(step)},
		"start": {fmt.Sprint(s.from.Unix())}, "end": {fmt.Sprint(s.to.Unix())},
	}.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Values [][2]any          `json:"values"` // seconds since 1970, and the value as text
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", expr, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("%s: %s", expr, answer.Error)
	}
	for _, one := range answer.Data.Result {
		name := label.ReplaceAllStringFunc(legend, func(text string) string { return one.Metric[label.FindStringSubmatch(text)[1]] })
		for _, v := range one.Values {
			at, isNumber := v[0].(float64)
			text, isText := v[1].(string)
			y, err := strconv.ParseFloat(text, 64)
			if !isNumber || !isText || err != nil {
				return fmt.Errorf("%s: unknown value %v", expr, v)
			}
			if y-y == 0 { // finite
				to[name] = append(to[name], plotter.XY{X: (at - float64(s.from.Unix())) / 60, Y: y})
			}
		}
	}
	return nil
}

const (
	columns     = 3
	panelWidth  = 5 * vg.Inch
	panelHeight = 2.6 * vg.Inch
)

// draw writes the picture.
func draw(to string, panels []panel, from *source) error {
	rows := make([][]*plot.Plot, (len(panels)+columns-1)/columns)
	for i := range rows {
		rows[i] = make([]*plot.Plot, columns)
	}
	for i, one := range panels {
		all := picture.Series{}
		for _, target := range one.Targets {
			if err := from.query(target.Expr, target.LegendFormat, all); err != nil {
				return err
			}
		}
		if len(all) == 0 {
			fmt.Println("no data:", one.Title)
		}
		title := one.Title
		if strings.HasPrefix(one.FieldConfig.Defaults.Unit, "bytes") {
			title += ", MiB"
			for _, line := range all {
				for j := range line {
					line[j].Y /= 1 << 20
				}
			}
		} else if unit := one.FieldConfig.Defaults.Unit; unit != "" && unit != "none" && unit != "short" {
			title += ", " + unit
		}
		p, err := picture.Lines(title, "minutes", all)
		if err != nil {
			return err
		}
		p.Y.Min = 0
		rows[i/columns][i%columns] = p
	}
	return picture.Write(to, columns*panelWidth, vg.Length(len(rows))*panelHeight, rows)
}

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/perf/benchfmt"
)

// data is what a file has of measurements.
type data struct {
	machine map[string]string // its lines at the top
	rows    []row             // in their order, so that the k-th of each name are of one round
}

// A row is a line of a file.
type row struct {
	kind string            // Semaphore, Waits, State
	keys map[string]string // op, impl, workers
	vals map[string]float64
}

func read(file string) (*data, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &data{machine: make(map[string]string)}
	reader := benchfmt.NewReader(f, file)
	for reader.Scan() {
		switch r := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, r
		case *benchfmt.Result:
			d.add(r)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(d.rows) == 0 {
		return nil, errors.New(file + ": no results")
	}
	return d, nil
}

func (d *data) add(r *benchfmt.Result) {
	for _, c := range r.Config {
		d.machine[c.Key] = string(c.Value)
	}
	base, parts := r.Name.Parts()
	row := row{kind: string(base), keys: make(map[string]string), vals: make(map[string]float64)}
	for _, part := range parts {
		for i, b := range part {
			if b == '=' {
				row.keys[string(part[1:i])] = string(part[i+1:])
				break
			}
		}
	}
	for _, v := range r.Values {
		unit, value := v.Unit, v.Value
		if v.OrigUnit != "" { // benchfmt makes seconds of ns
			unit, value = v.OrigUnit, v.OrigValue
		}
		row.vals[unit] = value
	}
	d.rows = append(d.rows, row)
}

// values are the values in all rounds.
func (d *data) values(unit, kind string, keys ...string) (values []float64) {
	for _, r := range d.all(kind, keys...) {
		if v, ok := r.vals[unit]; ok {
			values = append(values, v)
		}
	}
	return values
}

// all are the rows of a kind with the given keys and values.
func (d *data) all(kind string, keys ...string) (rows []row) {
next:
	for _, r := range d.rows {
		if r.kind != kind {
			continue
		}
		for i := 0; i < len(keys); i += 2 {
			if r.keys[keys[i]] != keys[i+1] {
				continue next
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// where says on which machine it was.
func (d *data) where() string {
	cores, _ := strconv.Atoi(d.machine["cores"])
	s := "s"
	if cores == 1 {
		s = ""
	}
	return fmt.Sprintf("%d shared core%s, %s, %s/%s, Go %s, commit %s",
		cores, s, d.machine["cpu"], d.machine["goos"], d.machine["goarch"], d.machine["go"], d.machine["commit"])
}

// Sbom writes the software bill of materials of Go binaries, as CycloneDX 1.6 JSON: the modules
// that are linked into them, with versions, digests and licences. It fails if a licence is
// unknown or not permitted. With -notices it writes the texts of the licences to a file, which
// must accompany the binaries.
//
//	go run ./internal/sbom -notices dist/NOTICES dist/docstore > dist/sbom.json
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// permitted are the SPDX identifiers of the licences of released commands.
var permitted = []string{"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "MPL-2.0", "ISC"}

func main() {
	notices := flag.String("notices", "", "`file` for the texts of the licences; empty: none")
	flag.Parse()
	if err := run(flag.Args(), *notices); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binaries []string, notices string) error {
	if len(binaries) == 0 {
		return errors.New("name the binaries")
	}
	modules := map[string]*debug.Module{}
	var main *buildinfo.BuildInfo
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		main = info
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = m
		}
	}
	bill := bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	bill.Metadata.Component = component{Type: "application", Name: main.Main.Path, Version: main.Main.Version}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	std, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	if err != nil {
		return err
	}
	bill.Components = append(bill.Components, component{Type: "library", Name: "std", Version: strings.TrimPrefix(main.GoVersion, "go"), Licenses: licensesOf("BSD-3-Clause"), text: std})
	var problems []error
	for _, m := range modules {
		c, err := describe(m)
		problems = append(problems, err)
		bill.Components = append(bill.Components, c)
	}
	slices.SortFunc(bill.Components, func(a, b component) int { return cmp.Compare(a.Name, b.Name) })
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if notices != "" {
		if err := os.WriteFile(notices, noticesOf(bill.Components), 0o644); err != nil {
			return err
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(bill)
}

// noticesOf returns each text once, after the modules that have it.
func noticesOf(components []component) []byte {
	var text bytes.Buffer
	for i, c := range components {
		same := func(o component) bool { return bytes.Equal(o.text, c.text) }
		if slices.ContainsFunc(components[:i], same) {
			continue
		}
		for _, o := range components[i:] {
			if same(o) {
				fmt.Fprintf(&text, "%s %s (%s)\n", o.Name, o.Version, o.Licenses[0].License.ID)
			}
		}
		fmt.Fprintf(&text, "\n%s\n\n", c.text)
	}
	return text.Bytes()
}

// bom and component are the part of CycloneDX that is used here.
type bom struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type     string        `json:"type"`
	Name     string        `json:"name"`
	Version  string        `json:"version,omitempty"`
	PURL     string        `json:"purl,omitempty"`
	Hashes   []hash        `json:"hashes,omitempty"`
	Licenses []licenseItem `json:"licenses,omitempty"`

	text []byte // of the licence
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licenseItem struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

func licensesOf(id string) []licenseItem {
	var l licenseItem
	l.License.ID = id
	return []licenseItem{l}
}

// describe returns the entry of a module.
func describe(m *debug.Module) (component, error) {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("%s: sum %q: %w", m.Path, m.Sum, err)
	}
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	out, err := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version).Output()
	if err != nil {
		return c, fmt.Errorf("go mod download %s: %w", m.Path, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return c, err
	}
	license, text, err := licenseIn(downloaded.Dir)
	if err == nil && !slices.Contains(permitted, license) {
		err = fmt.Errorf("licence %s is not permitted: remove the module, or permit the licence in internal/sbom", license)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", m.Path, err)
	}
	c.Licenses, c.text = licensesOf(license), text
	return c, nil
}

// phrases identify licences, the most specific first.
var phrases = []struct{ text, license string }{
	{"GNU AFFERO GENERAL PUBLIC LICENSE", "AGPL-3.0-only"},
	{"GNU LESSER GENERAL PUBLIC LICENSE", "LGPL-3.0-only"},
	{"GNU GENERAL PUBLIC LICENSE", "GPL-2.0-only"},
	{"Mozilla Public License", "MPL-2.0"},
	{"Apache License", "Apache-2.0"},
	{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
	{"Permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"},
	{"Permission to use, copy, modify, and distribute this software for any purpose", "ISC"},
	{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
}

// licenseIn returns the SPDX identifier and the text of the licence of a module.
func licenseIn(dir string) (id string, text []byte, err error) {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "License*", "license*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", nil, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", nil, err
			}
			words := strings.Join(strings.Fields(string(content)), " ")
			for _, p := range phrases {
				if !strings.Contains(words, p.text) {
					continue
				}
				if p.license == "BSD-2-Clause" && strings.Contains(words, "Neither the name") {
					return "BSD-3-Clause", content, nil
				}
				return p.license, content, nil
			}
		}
	}
	return "", nil, errors.New("its licence is unknown: look at the module, and add a phrase of the licence to internal/sbom")
}

package main

import (
	"fmt"
	"strings"
)

// parseLabels reads K=V pairs.
func parseLabels(args []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, s := range args {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, &usageError{fmt.Sprintf("--label %q: give KEY=VALUE", s)}
		}
		labels[k] = v
	}
	return labels, nil
}

// selects reports whether labels has all that the filter (K=V or K) asks for.
func selects(filter []string, labels map[string]string) bool {
	for _, s := range filter {
		k, v, exact := strings.Cut(s, "=")
		got, ok := labels[k]
		if !ok || exact && got != v {
			return false
		}
	}
	return true
}

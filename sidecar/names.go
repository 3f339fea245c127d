package sidecar

// Names lists what can stand for things of a kind ("checkpoint", "fork" or "run") on a command line: names, and ids of
// what has none.
func (h *Host) Names(kind string) []string {
	var names []string
	if h.store == nil {
		return nil
	}
	switch kind {
	case "checkpoint":
		list, _ := h.store.Names() // completion offers what can be read
		for _, n := range list {
			names = append(names, n.Name)
		}
	}
	return names
}

"""Projects of Coppice in the words of NovaOS. See docs/projects.md."""

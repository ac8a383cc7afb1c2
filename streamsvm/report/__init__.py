"""Pictures of what was learned."""

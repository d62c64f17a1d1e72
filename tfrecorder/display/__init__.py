"""What people see: tables and progress bars."""
